"""libisal.a for wheels, from the source of Debian's own package: Debian ships ISA-L shared only.

1. The source of the installed libisal-dev's version: its headers are those that we compile with.
2. The parts crc and erasure_code, as position-independent code. ISA-L chooses at run time between
   its forms for SSE4, AVX2 and AVX-512, by a pointer of its own that the first call sets.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import setup
from stamp import BUILD

FOLDER = BUILD / "wheel" / "isal"
NEEDED = {"nasm": "nasm", "dpkg-source": "dpkg-dev", "make": "make"}  # program: Debian's package
APT_FOLDER = Path("/etc/apt")
FORMS = ("crc32_iscsi_by16_10", "crc32_iscsi_01", "gf_6vect_mad_avx512", "gf_6vect_mad_avx2")


class IsalError(Exception):
    """Why there is no libisal.a."""


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise IsalError(
            f"`{' '.join(command)}` failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return done.stdout


def installed_version() -> str:
    """Of the source that the installed headers come from."""
    query = ["dpkg-query", "-W", "-f", "${source:Version}", "libisal-dev"]
    return run(query, BUILD).strip()


def as_source_entries(text: str, suffix: str) -> str:
    """The entries of one of apt's files, for source packages and not for compiled ones."""
    if suffix == ".sources":
        return re.sub(r"^Types:.*$", "Types: deb-src", text, flags=re.MULTILINE)
    return re.sub(r"^deb(-src)?\b", "deb-src", text, flags=re.MULTILINE)


def debian_addresses() -> set[str]:
    form = ["apt-get", "indextargets", "--format", "$(ORIGIN) $(REPO_URI)"]
    lines = run([*form, "Created-By: Packages"], BUILD).splitlines()
    return {line.split()[1].rstrip("/") for line in lines if line.startswith("Debian ")}


def write_sources(folder: Path) -> None:
    """apt's own files that name an archive of Debian, copied and asked for sources."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    addresses = debian_addresses()
    files = [*sorted((APT_FOLDER / "sources.list.d").glob("*")), APT_FOLDER / "sources.list"]
    for path in files:
        if path.suffix in (".sources", ".list") and path.is_file():
            text = path.read_text()
            if any(address in text for address in addresses):
                (folder / path.name).write_text(as_source_entries(text, path.suffix))


def fetch(version: str) -> Path:
    """The unpacked source; apt checks its signatures."""
    lists = FOLDER / "lists"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    write_sources(FOLDER / "sources")
    apt = ["apt-get", "-q", "-o", "Dir::Etc::sourcelist=-", "-o", "APT::Sandbox::User=root"]
    apt += ["-o", f"Dir::Etc::sourceparts={FOLDER / 'sources'}", "-o", f"Dir::State::lists={lists}"]
    run([*apt, "update"], FOLDER)
    for old in FOLDER.glob("libisal-*"):
        shutil.rmtree(old)
    run([*apt, "source", "--only-source", f"libisal={version}"], FOLDER)
    (source,) = FOLDER.glob("libisal-*/")
    return source


def require_programs() -> None:
    missing = [package for name, package in NEEDED.items() if shutil.which(name) is None]
    if missing and setup.install(missing) != 0:
        raise IsalError(f"needed to assemble ISA-L, and not there: {' '.join(missing)}")


def require_forms(library: Path) -> None:
    """An old assembler leaves out instructions that it can't read, without an error."""
    names = run(["nm", "--defined-only", str(library)], FOLDER)
    lacking = [form for form in FORMS if not re.search(rf"\b{form}\b", names)]
    if lacking:
        raise IsalError(f"{library.name} was assembled without {', '.join(lacking)}")


def library() -> Path:
    """The path of libisal.a, made if it is not there yet."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    version = installed_version()
    made = FOLDER / version / "libisal.a"
    if made.exists():
        return made
    require_programs()
    source = fetch(version)
    units = ["lib", "units=crc erasure_code", "CC=gcc -fPIC"]
    run(["make", "-f", "Makefile.unx", *units], source)
    require_forms(source / "bin" / "isa-l.a")
    made.parent.mkdir(exist_ok=True)
    shutil.copy(source / "bin" / "isa-l.a", made)
    return made
