"""Links and paths in documents lead somewhere: to a file or folder, and to a heading in it.

Paths are words in `code quotes` that begin with a folder of the tree. What is written of the past
(changes, decisions) or by a program (results) may name paths that are gone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from .source import Finding, Source, Tree

# [text](target), ![text](target), and at the start of a line [name]: target
_LINK = re.compile(r"\]\(([^)\s]+)\)|^\[[^\]]+\]: +(\S+)$", re.MULTILINE)
_CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_ELSEWHERE = re.compile(r"[a-z]+:")
_QUOTED = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"[\w.\-]+(?:/[\w.\-]+)+/?")
_PLACEHOLDER = re.compile(r"NAME|VERB|PATH")
_OF_THE_PAST = ("CHANGELOG.md", "docs/decisions/", "lab/results/", "tests/torture.md")


def check(tree: Tree) -> Iterator[Finding]:
    folders = {source.path.partition("/")[0] for source in tree.sources if "/" in source.path}
    for source in tree.sources:
        if source.suffix == ".md":
            yield from _of(source, tree.root)
            if not source.path.startswith(_OF_THE_PAST):
                yield from _paths(source, tree.root, folders)


def _paths(source: Source, root: Path, folders: set[str]) -> Iterator[Finding]:
    for number, line in enumerate(source.lines, 1):
        words = " ".join(_QUOTED.findall(line)).split()
        for word in (each.partition(":")[0].rstrip(",.") for each in words):
            of_tree = _PATH.fullmatch(word) and word.partition("/")[0] in folders
            if of_tree and not _exists(word, (root, (root / source.path).parent)):
                yield Finding(source.path, number, "links", f"{word} is no path of the tree")


def _exists(word: str, folders: tuple[Path, ...]) -> bool:
    """Whether a path exists; up to its placeholder, if it has one. A test may go by its program."""
    before, *_ = _PLACEHOLDER.split(word, maxsplit=1)
    known = before.rpartition("/")[0] if before != word else word
    program = f"{known}.cc" if known.endswith("_test") else known
    return any((folder / each).exists() for folder in folders for each in (known, program))


def _of(source: Source, root: Path) -> Iterator[Finding]:
    text = _CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), source.text)
    for match in _LINK.finditer(text):
        target = match[1] or match[2]
        line = text.count("\n", 0, match.start()) + 1
        if not _ELSEWHERE.match(target) and (fault := _fault(root / source.path, target)):
            yield Finding(source.path, line, "links", fault)


def _fault(document: Path, target: str) -> str | None:
    """The fault of a link; None if it leads somewhere."""
    name, _, heading = target.partition("#")
    path = document.parent / name if name else document
    if not path.exists():
        return f"{target} leads nowhere"
    if heading and path.suffix == ".md" and heading not in _headings(path):
        return f"{name or document.name} has no heading for #{heading}"
    return None


@cache
def _headings(path: Path) -> set[str]:
    """The names under which GitHub and others let one link to the headings of a document."""
    found: dict[str, int] = {}
    names = set()
    text = re.sub(r"^ *```.*?^ *```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    for title in re.findall(r"^#{1,6} +(.*?) *$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        name = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        names.add(f"{name}-{found[name]}" if name in found else name)
        found[name] = found.get(name, 0) + 1
    return names
