"""The archive of Debian that this machine's apt uses, through an apt with a state of its own.

The packages that it fetches lie in a folder, and their signatures are checked. Nothing is
installed, and the lists of the machine's own apt stay as they are.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from stamp import ROOT

APT_FOLDER = Path("/etc/apt")


class ArchiveError(Exception):
    """A command that failed, and the end of its output."""


def run(command: list[str], folder: Path = ROOT) -> str:
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ArchiveError(
            f"`{' '.join(command)}` failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return done.stdout


def addresses() -> set[str]:
    form = ["apt-get", "indextargets", "--format", "$(ORIGIN) $(REPO_URI)"]
    lines = run([*form, "Created-By: Packages"]).splitlines()
    return {line.split()[1].rstrip("/") for line in lines if line.startswith("Debian ")}


def as_entries(text: str, suffix: str, kind: str) -> str:
    """The entries of one of apt's files, all of one kind: "deb", or "deb-src" for sources."""
    if suffix == ".sources":
        return re.sub(r"^Types:.*$", f"Types: {kind}", text, flags=re.MULTILINE)
    return re.sub(r"^deb(-src)?\b", kind, text, flags=re.MULTILINE)


def write_entries(folder: Path, kind: str) -> None:
    """apt's own files that name an archive of Debian, copied and asked for one kind."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    known = addresses()
    files = [*sorted((APT_FOLDER / "sources.list.d").glob("*")), APT_FOLDER / "sources.list"]
    for path in files:
        if path.suffix in (".sources", ".list") and path.is_file():
            text = path.read_text()
            if any(address in text for address in known):
                (folder / path.name).write_text(as_entries(text, path.suffix, kind))


def updated_apt(folder: Path, kind: str, *settings: str) -> list[str]:
    """The beginning of a command of apt-get whose lists lie in the folder, and are up to date."""
    lists = folder / "lists"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    write_entries(folder / "sources", kind)
    state = ["Dir::Etc::sourcelist=-", f"Dir::Etc::sourceparts={folder / 'sources'}"]
    state += [f"Dir::State::lists={lists}", "APT::Sandbox::User=root", *settings]
    command = ["apt-get", "-q", *(word for setting in state for word in ("-o", setting))]
    run([*command, "update"], folder)
    return command
