"""Code that the sources may not contain, each with its replacement."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .source import CPP, PYTHON, Finding, Source, Tree

LINE_MAX = 100


def _anywhere(_: Source) -> bool:
    return True


def _outside_storage(source: Source) -> bool:
    """The files of ipc are sockets and memory, the last two a pipe and a device: none of a run."""
    allowed = (
        "src/storage/",
        "src/ipc/",
        "src/object/credential_process.cc",
        "src/base/random_id.cc",
    )
    return source.path.startswith("src/") and not (
        source.path.startswith(allowed) or source.is_test
    )


def _outside_the_flusher(source: Source) -> bool:
    """Its threads wait for file systems that may never answer; such a thread is left behind."""
    return source.path != "src/tiering/flusher.cc"


def _outside_binding(source: Source) -> bool:
    return not source.path.startswith("python/src/")


@dataclass(frozen=True)
class Ban:
    name: str
    pattern: re.Pattern[str]
    instead: str
    applies: Callable[[Source], bool] = _anywhere


# A bare or global call of a C function: not a member, not another class's.
_CALL = r"(?<![\w.>:])(?:::)?"
# Names that C++ classes also use are a system call only with :: in front.
_GLOBAL = r"(?<![\w>:])::"

BANS = (
    Ban(
        "detach",
        re.compile(r"[.>]detach\s*\("),
        "own and join a std::jthread",
        _outside_the_flusher,
    ),
    Ban(
        "rename",
        re.compile(rf"(?:{_CALL}renameat2?|{_GLOBAL}rename|\b(?:std|filesystem|fs)::rename)\s*\("),
        "Vfs::rename_no_replace",
        _outside_storage,
    ),
    Ban(
        "file call",
        re.compile(
            rf"(?:{_CALL}(?:pwritev?2?|preadv?2?|fsync|fdatasync|unlink|unlinkat|ftruncate|"
            rf"fallocate|mkdir|mkdirat|rmdir|fopen|openat)|"
            rf"{_GLOBAL}(?:open|write|read|remove))\s*\("
        ),
        "a member of Vfs or File",
        _outside_storage,
    ),
    Ban(
        "file stream",
        re.compile(r"\bstd::[io]?fstream\b|\bfilesystem::(?:remove|create_director|resize_file)"),
        "a member of Vfs or File",
        _outside_storage,
    ),
    Ban("assert", re.compile(rf"{_CALL}assert\s*\("), "a checked error (fail(), DF_TRY)"),
    Ban("endl", re.compile(r"\bstd::endl\b"), "'\\n'"),
    Ban("volatile", re.compile(r"\bvolatile\b"), "std::atomic with its memory order"),
    Ban(
        "using namespace",
        re.compile(r"\busing\s+namespace\b(?!\s+[\w:]*literals)"),
        "the names one by one",
    ),
    Ban(
        "catch all",
        re.compile(r"\bcatch\s*\(\s*\.\.\.\s*\)"),
        "catch what the call throws, as close to it as can be",
        _outside_binding,
    ),
    Ban(
        "new",
        re.compile(r"(?<!operator )\bnew\s+(?:\(std::nothrow\)\s*)?[A-Za-z_:]"),
        "std::make_unique or a container",
    ),
    Ban(
        "delete",
        re.compile(r"(?<!operator )(?<!= )\bdelete(?:\s*\[\s*\])?\s+[A-Za-z_(*]"),
        "an owner with a destructor",
        _outside_binding,
    ),
    Ban("rand", re.compile(rf"{_CALL}(?:std::)?s?rand\s*\("), "std::mt19937_64, its seed printed"),
)

# Spelt in parts, so that this file does not find itself.
_LEFTOVER = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|X" r"XX)\b")
_MACHINE_PATH = re.compile(r"(?<![\w.~/-])/(?:wo" r"rk|ro" r"ot|ho" r"me|Us" r"ers)/\w")


def check(tree: Tree) -> Iterator[Finding]:
    allowed = tree.exceptions("banned")
    for source in tree.sources:
        found = [*_bans(source), *_text(source)]
        for rule in sorted({finding.rule for finding in found}):
            mine = [finding for finding in found if finding.rule == rule]
            if allowed.get(f"{source.path}:{rule.replace(' ', '-')}", 0) < len(mine):
                yield from mine


def _bans(source: Source) -> Iterator[Finding]:
    if not source.is_cpp:
        return
    for ban in (ban for ban in BANS if ban.applies(source)):
        for number, line in enumerate(source.code_lines, 1):
            if ban.pattern.search(line):
                yield Finding(source.path, number, ban.name, f"write {ban.instead} instead")


def _text(source: Source) -> Iterator[Finding]:
    has_code = source.suffix in CPP | PYTHON or source.path.endswith("CMakeLists.txt")
    for number, line in enumerate(source.lines, 1):
        if _LEFTOVER.search(line):
            yield Finding(source.path, number, "leftover", "do it, or open an issue")
        if _MACHINE_PATH.search(line):
            yield Finding(source.path, number, "machine path", "a path that others have too")
        if has_code and len(line) > LINE_MAX:
            yield Finding(
                source.path, number, "line", f"{len(line)} characters, {LINE_MAX} at most"
            )
