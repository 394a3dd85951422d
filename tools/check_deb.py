#!/usr/bin/env python3
"""`make check-deb`: installs the packages of build/deb in a bare root, and builds with them there.

1. A bare root of this machine's own release of Debian (bare_root.py): packages depend on the
   libraries that they were built with.
2. The packages that apt installs there are fetched here, as an archive in the root: the root has
   no network.
3. The program alone: its version, its manual pages, its completions in three shells.
4. The library: the commands of docs/cpp.md, word for word, on the example that the package has.

Needs root.
"""

from __future__ import annotations

import platform
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import bare_root
import deb
import debian_archive
from bare_root import RootError, in_root
from stamp import BUILD, ROOT

ARCHIVE = BUILD / "deb-archive"
SHELLS = ("bash-completion", "fish", "zsh")
BUILDING = ("cmake", "g++", "make", "openmpi-bin", "libopenmpi-dev")
EXAMPLE = "/usr/share/doc/libdeepfreeze-dev/examples/mpi_heat"
# mpirun refuses root, and more ranks than cores, unless it is told.
MPI_SETTINGS = (
    *("OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"),
    *("OMPI_MCA_rmaps_base_oversubscribe=1", "OMPI_MCA_btl=self,vader"),
)
# The words that each shell offers after `deepfreeze scru` and `deepfreeze scrub --ra`.
COMPLETIONS = {
    "bash": ". /usr/share/bash-completion/bash_completion; _completion_loader deepfreeze; "
    "for words in 'deepfreeze scru' 'deepfreeze scrub --ra'; do COMP_WORDS=($words); "
    "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _deepfreeze; echo ${COMPREPLY[@]}; done",
    "fish": "complete --do-complete 'deepfreeze scru'; complete --do-complete "
    "'deepfreeze scrub --ra'",
    # zsh completes in a terminal alone: here it reads the file, and knows whose it is.
    "zsh": "autoload -Uz compinit && compinit -u -D && echo $_comps[deepfreeze] && "
    "autoload +X $_comps[deepfreeze] && echo $functions[_deepfreeze]",
}


def say(text: str) -> None:
    print(f"check-deb: {text}", flush=True)


def shell(root: Path, script: str, *settings: str) -> str:
    return in_root(root, "env", "DEBIAN_FRONTEND=noninteractive", *settings, "sh", "-ec", script)


def packages() -> list[str]:
    found = [str(path) for path in sorted(deb.PACKAGES.glob("*.deb"))]
    if not found:
        raise RootError("there is no package in build/deb; run `make deb`")
    return found


def fetch(root: Path) -> None:
    """An archive in the root: our packages, and all that it lacks for them and for the trial."""
    place = root / "archive"
    (place / "partial").mkdir(parents=True)
    status = root / "var" / "lib" / "dpkg" / "status"
    settings = (f"Dir::State::status={status}", f"Dir::Cache::archives={place}")
    shutil.rmtree(ARCHIVE, ignore_errors=True)
    apt = debian_archive.updated_apt(ARCHIVE, "deb", f"Dir::Cache={ARCHIVE}", *settings)
    wanted = [*packages(), "man-db", *SHELLS, *BUILDING]
    download = ["install", "-y", "--download-only", "--no-install-recommends"]
    debian_archive.run([*apt, *download, *wanted])
    for path in packages():
        shutil.copy(path, place)
    (place / "Packages").write_text(debian_archive.run(["dpkg-scanpackages", "-m", "."], place))
    sources = root / "etc" / "apt" / "sources.list"
    sources.write_text("deb [trusted=yes] file:/archive ./\n")


def install(root: Path, *names: str) -> None:
    command = f"apt-get -q install -y --no-install-recommends {' '.join(names)}"
    shell(root, f"apt-get -q update; {command}")


def verbs_of(help_text: str) -> list[str]:
    _, _, below = help_text.partition("Subcommands:\n")
    return re.findall(r"^  (\S+)", below.partition("\n\n")[0], re.MULTILINE)


def faults_of_program(root: Path) -> Iterator[str]:
    install(root, "deepfreeze")
    said = shell(root, "deepfreeze --version").strip()
    say(f"the program says: {said}")
    if said != f"deepfreeze {deb.version()}":
        yield f"the package has version {deb.version()}, its program says {said}"
    install(root, "man-db", *SHELLS)
    verbs = verbs_of(shell(root, "deepfreeze --help"))
    if len(verbs) < 2:
        yield "deepfreeze --help lists no verbs"
    names = ["deepfreeze", *(f"deepfreeze-{verb}" for verb in verbs)]
    pages = shell(root, f"for name in {' '.join(names)}; do man -w $name; done")
    say(f"{len(pages.split())} manual pages for {len(verbs)} verbs and the program")
    drawn = shell(root, "man -P cat deepfreeze")
    yield from (f"man deepfreeze does not name {each}" for each in names if each not in drawn)
    for name, script in COMPLETIONS.items():
        offered = in_root(root, name, "-c", script)
        if "scrub" not in offered or "--rate" not in offered:
            yield f"{name} does not complete: {offered}"


def commands_of(document: str) -> str:
    """Those of the section about a whole program."""
    section = document.partition("## A whole program")[2]
    found = re.search(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    if found is None:
        raise RootError("docs/cpp.md has no commands under 'A whole program'")
    return found[1]


def faults_of_library(root: Path) -> Iterator[str]:
    if shell(root, "command -v c++ cmake || true").strip():
        yield "the program's package brings a compiler"
    install(root, "libdeepfreeze-dev", *BUILDING)
    commands = commands_of((ROOT / "docs" / "cpp.md").read_text())
    prepare = f"mkdir -p /trial/examples; cp -r {EXAMPLE} /trial/examples; cd /trial\n"
    printed = shell(root, prepare + commands, *MPI_SETTINGS)
    starts = re.findall(r"^starts (\d+)$", printed, re.MULTILINE)
    plates = re.findall(r"^plate (\w+)$", printed, re.MULTILINE)
    say(f"mpi_heat started at the steps {' and '.join(starts)}; plates {' '.join(plates)}")
    if starts != ["0", "5000"] or len(plates) != 2 or len(set(plates)) != 1:
        yield f"mpi_heat did not go on with the same plate:\n{printed[-2000:]}"
    listed = shell(root, "deepfreeze verify /trial/runs/heat && deepfreeze ls /trial/runs/heat")
    print(listed, end="")
    if not re.search(r"^ *5000 ", listed, re.MULTILINE):
        yield "deepfreeze ls does not list the last step"


def check() -> list[str]:
    bare_root.require_tools()
    suite = platform.freedesktop_os_release()["VERSION_CODENAME"]
    root = bare_root.copy(bare_root.bare_root(suite), "trial-deb")
    fetch(root)
    faults = [*faults_of_program(root), *faults_of_library(root)]
    shutil.rmtree(root)
    return faults


def main() -> int:
    try:
        faults = check()
    except (RootError, debian_archive.ArchiveError) as error:
        faults = [str(error)]
    for fault in faults:
        print(f"check-deb: {fault}", file=sys.stderr, flush=True)
    if not faults:
        say("the packages install, and all their parts work")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
