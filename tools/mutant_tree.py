"""A copy of the sources in which every site can be left out, chosen when a test starts."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

from mutant_sites import Edit, Finder, refusing_names, rewritten

FOLDERS = (
    "json", "format", "storage", "pipeline", "manifest", "restore", "arena", "device", "staging",
    "save", "agreement", "api", "tensor", "plan", "ranks", "tiering", "ipc", "agent", "link",
    "nodes",
)  # fmt: skip
FILES_OF_BASE = ("utf8.cc",)  # the checks of input that stand below every folder
COPIED = ("CMakeLists.txt", "cmake", "include", "src", "tests")

# DF_MUTANT=7 leaves out site 7; without it, or with 0, all is as it stands in the sources.
SWITCH = """#pragma once
#include <cstdlib>
inline bool df_mutant_live(int number) {
  static const int left_out = [] {
    const char* text = std::getenv("DF_MUTANT");
    return text == nullptr ? 0 : std::atoi(text);
  }();
  return left_out != number;
}
"""


def mutated_sources(root: Path) -> list[Path]:
    """The files that are searched, in order."""
    found = []
    for folder in FOLDERS:
        for path in sorted((root / "src" / folder).glob("*.cc")):
            if not path.stem.endswith(("_test", "_fixture")):
                found.append(path.relative_to(root))
    return [*found, *(Path("src/base") / name for name in FILES_OF_BASE)]


def find_edits(root: Path) -> list[tuple[int, Edit]]:
    """All sites, numbered from 1 in the order of files and lines."""
    paths = mutated_sources(root)
    names = refusing_names(path.read_text() for path in sorted((root / "src").rglob("*.cc")))
    edits = []
    for path in paths:
        finder = Finder(str(path), (root / path).read_text(), names)
        edits += sorted(finder.edits(), key=lambda edit: (edit.begin, -edit.end))
    return list(enumerate(edits, 1))


def write(root: Path, place: Path, edits: list[tuple[int, Edit]]) -> None:
    """The copy; files that would be the same as they are stay untouched, for the build's sake."""
    wanted = {path.relative_to(root): path.read_bytes() for path in _copied(root)}
    for path in mutated_sources(root):
        own = [(number, edit) for number, edit in edits if edit.site.path == str(path)]
        wanted[path] = rewritten(wanted[path].decode(), own).encode()
    wanted[Path("df_mutant.h")] = SWITCH.encode()
    for path, content in wanted.items():
        target = place / path
        if target.exists() and target.read_bytes() == content:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    _remove_others(place, set(wanted))


def _copied(root: Path) -> Iterator[Path]:
    for name in COPIED:
        source = root / name
        yield from [source] if source.is_file() else filter(Path.is_file, source.rglob("*"))


def _remove_others(place: Path, wanted: set[Path]) -> None:
    for path in sorted(place.rglob("*")):
        if path.is_file() and path.relative_to(place) not in wanted:
            path.unlink()


def build(place: Path, binaries: Path, jobs: int) -> None:
    """Compiles the copy without warnings as errors: code that is left out leaves names unused.

    With the library's assertions, since a value that is not there must not be read by luck.
    """
    header = place / "df_mutant.h"
    configure = ["cmake", "-S", str(place), "-B", str(binaries), "-G", "Ninja"]
    configure += ["-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG"]
    configure += ["-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=10"]
    configure += ["-DDF_TESTS=ON", "-DDF_WERROR=OFF"]
    configure += [f"-DCMAKE_CXX_FLAGS=-w -D_GLIBCXX_ASSERTIONS -include {header}"]
    subprocess.run(configure, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    subprocess.run(
        ["cmake", "--build", str(binaries), "-j", str(jobs)], check=True, stdin=subprocess.DEVNULL
    )


def test_programs(binaries: Path) -> list[Path]:
    return sorted(path for path in binaries.rglob("*_test") if path.is_file())
