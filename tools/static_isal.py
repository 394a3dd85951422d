"""libisal.a for wheels, from the source of Debian's own package: Debian ships ISA-L shared only.

1. The source of the installed libisal-dev's version: its headers are those that we compile with.
2. The parts crc and erasure_code, as position-independent code. ISA-L chooses at run time between
   its forms for SSE4, AVX2 and AVX-512, by a pointer of its own that the first call sets.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import setup
from debian_archive import ArchiveError, run, updated_apt
from stamp import BUILD

FOLDER = BUILD / "wheel" / "isal"
NEEDED = {"nasm": "nasm", "dpkg-source": "dpkg-dev", "make": "make"}  # program: Debian's package
FORMS = ("crc32_iscsi_by16_10", "crc32_iscsi_01", "gf_6vect_mad_avx512", "gf_6vect_mad_avx2")


class IsalError(ArchiveError):
    """Why there is no libisal.a."""


def installed_version() -> str:
    """Of the source that the installed headers come from."""
    query = ["dpkg-query", "-W", "-f", "${source:Version}", "libisal-dev"]
    return run(query, BUILD).strip()


def fetch(version: str) -> Path:
    """The unpacked source; apt checks its signatures."""
    apt = updated_apt(FOLDER, "deb-src")
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
