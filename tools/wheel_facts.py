"""The needs of a wheel's binaries, and the symbols that they show to other libraries."""

from __future__ import annotations

import re
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Those of glibc, and the unwinder: on every Linux that a manylinux tag speaks of.
SYSTEM_LIBRARIES = frozenset({"libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"})
ENTRY = "PyInit__core"
NOTICES = ("cli11", "fmt", "isa-l", "liburing", "libstdc++", "nanobind")
SIZE_MAX = 8 << 20
GLIBC_MAX = (2, 34)  # of the tag manylinux_2_34
ELF = b"\x7fELF"


@dataclass(frozen=True)
class Binary:
    """One ELF file, as readelf describes it."""

    needed: frozenset[str]
    run_paths: tuple[str, ...]
    exported: frozenset[str]
    glibc: tuple[int, int]  # the newest version of glibc that a symbol asks for
    has_executable_stack: bool
    has_symbol_table: bool


def parse(text: str) -> Binary:
    """From the output of `readelf --wide --dynamic --dyn-syms --program-headers --sections`."""
    versions = [(int(a), int(b)) for a, b in re.findall(r"@GLIBC_(\d+)\.(\d+)", text)]
    symbols = re.findall(r"^ *\d+: [0-9a-f]+ .* (GLOBAL|WEAK|UNIQUE) +\S+ +(\S+) (\S+)", text, re.M)
    return Binary(
        needed=frozenset(re.findall(r"\(NEEDED\).*\[(.*)\]", text)),
        run_paths=tuple(re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", text)),
        exported=frozenset(name.split("@")[0] for _, place, name in symbols if place != "UND"),
        glibc=max(versions, default=(0, 0)),
        has_executable_stack=re.search(r"GNU_STACK .* RWE ", text) is not None,
        has_symbol_table=re.search(r"\.symtab\b", text) is not None,
    )


def read(path: Path) -> Binary:
    command = ["readelf", "--wide", "--dynamic", "--dyn-syms", "--program-headers", "--sections"]
    done = subprocess.run([*command, str(path)], capture_output=True, text=True, check=True)
    return parse(done.stdout)


def faults_of(name: str, binary: Binary, allowed_exports: frozenset[str]) -> Iterator[str]:
    """Reasons why this binary would not run elsewhere, or not beside other libraries."""
    if foreign := binary.needed - SYSTEM_LIBRARIES:
        yield f"{name} needs {', '.join(sorted(foreign))}"
    if binary.run_paths:
        yield f"{name} looks for libraries in {', '.join(binary.run_paths)}"
    if shown := binary.exported - allowed_exports:
        yield f"{name} exports {len(shown)} symbols, for example {min(shown)}"
    if binary.glibc > GLIBC_MAX:
        yield f"{name} needs glibc {binary.glibc[0]}.{binary.glibc[1]}"
    if binary.has_executable_stack:
        yield f"{name} asks for an executable stack, which glibc 2.41 refuses to load"
    if binary.has_symbol_table:
        yield f"{name} is not stripped"


def binaries_of(wheel: Path) -> dict[str, Binary]:
    found = {}
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        for name in archive.namelist():
            with archive.open(name) as member:
                if member.read(len(ELF)) != ELF:
                    continue
            found[name] = read(Path(archive.extract(name, folder)))
    return found


def is_program(name: str) -> bool:
    return name.endswith(".data/scripts/deepfreeze")


def faults_in(wheel: Path) -> list[str]:
    """Every reason why this wheel must not be handed out."""
    binaries = binaries_of(wheel)
    faults: list[str] = []
    for name, binary in binaries.items():
        allowed = frozenset() if is_program(name) else frozenset({ENTRY})
        faults += faults_of(name, binary, allowed)
    if not any(map(is_program, binaries)):
        faults.append("the native program deepfreeze is not in it")
    if not any(ENTRY in binary.exported for binary in binaries.values()):
        faults.append("the extension module is not in it")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    for notice in NOTICES:
        if not any(name.endswith(f".dist-info/licenses/licenses/{notice}.txt") for name in names):
            faults.append(f"the license of {notice}, which is compiled in, is not in it")
    if (size := wheel.stat().st_size) > SIZE_MAX:
        faults.append(f"it has {size / 2**20:.1f} MiB, more than {SIZE_MAX >> 20}")
    return faults
