"""Links within the repository lead somewhere: to a file or folder, and to a heading in it."""

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


def check(tree: Tree) -> Iterator[Finding]:
    for source in tree.sources:
        if source.suffix == ".md":
            yield from _of(source, tree.root)


def _of(source: Source, root: Path) -> Iterator[Finding]:
    text = _CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), source.text)
    for match in _LINK.finditer(text):
        target = match[1] or match[2]
        line = text.count("\n", 0, match.start()) + 1
        if not _ELSEWHERE.match(target) and (fault := _fault(root / source.path, target)):
            yield Finding(source.path, line, "links", fault)


def _fault(document: Path, target: str) -> str | None:
    """What is wrong with a link; None if it leads somewhere."""
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
