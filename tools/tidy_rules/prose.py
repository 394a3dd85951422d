"""Plain English, counted: comments of src, docstrings and comments of python/deepfreeze, Markdown.

Each area may have so many of three constructions per 10,000 words, and no wide line of Markdown.
CONTRIBUTING.md shows how to write instead. An area that is not there yet stands in
tools/ratchet.txt as `prose AREA:CONSTRUCTION NUMBER`; the number may only be lowered.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator

from .source import PYTHON, Finding, Source, Tree

LINE_MAX = 120

# Construction: the most per 10,000 words, its pattern, the advice.
LIMITS = {
    "noun": (20, r"\b(?:what|who|whoever)\s+(?!is the\b)[a-z]", "name the thing: 'tensors that…'"),
    "where": (20, r"\bwhere\b", "write 'if' or 'when'"),
    "start": (3, r"(?:^|(?<=[.:;] ))(?:(?-i:Of|By|Those|The same|Such)) ", "begin with a subject"),
}
_PATTERNS = {name: re.compile(each[1], re.IGNORECASE) for name, each in LIMITS.items()}
# Notes of changes are records of their day.
_RECORDS = ("changes/",)


def check(tree: Tree) -> Iterator[Finding]:
    known = tree.exceptions("prose")
    for area, sources in areas(tree).items():
        texts = {source.path: prose(source) for source in sources}
        words = sum(len(text.split()) for text in texts.values())
        for name, (limit, _, advice) in LIMITS.items():
            counts = {path: len(_PATTERNS[name].findall(text)) for path, text in texts.items()}
            rate = math.ceil(10_000 * sum(counts.values()) / words) if words else 0
            worst = max(counts, key=lambda path: counts[path], default="")
            said = f"{rate} of '{name}' in 10,000 words of {area}; {advice}; {worst} has most"
            yield from _judge(
                f"{area}:{name}", rate, limit, known, Finding(worst, 1, "prose", said)
            )
    yield from _wide(areas(tree)["documents"], known)


def areas(tree: Tree) -> dict[str, list[Source]]:
    found: dict[str, list[Source]] = {"src": [], "python": [], "documents": []}
    for source in tree.sources:
        if source.suffix == ".md":
            if not source.path.startswith(_RECORDS):
                found["documents"].append(source)
        elif source.path.startswith("src/") and source.is_cpp and not source.is_test:
            found["src"].append(source)
        elif source.path.startswith("python/deepfreeze/") and source.suffix in PYTHON:
            found["python"].append(source)
    return found


def prose(source: Source) -> str:
    """The sentences of a file, as one text."""
    if source.is_cpp:
        return " ".join(re.findall(r"//+\s?(.*)", source.text))
    if source.suffix not in PYTHON:
        return source.text
    lines = [line.strip() for line in source.lines]
    return " ".join([*(line[1:].strip() for line in lines if line.startswith("#")),
                     *_docstrings(source.text)])  # fmt: skip


def _docstrings(text: str) -> Iterator[str]:
    try:
        module = ast.parse(text)
    except SyntaxError:
        return
    for node in ast.walk(module):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def _wide(documents: list[Source], known: dict[str, int]) -> Iterator[Finding]:
    found = [
        Finding(source.path, number, "prose", f"{len(line)} characters, {LINE_MAX} at most")
        for source in documents
        for number, line in enumerate(source.lines, 1)
        if len(line) > LINE_MAX and not line.startswith("|")
    ]
    if found:
        yield from _judge("documents:wide", len(found), 0, known, found[-1])
    elif "documents:wide" in known:
        yield from _judge("documents:wide", 0, 0, known, Finding("", 1, "prose", ""))


def _judge(
    key: str, number: int, limit: int, known: dict[str, int], finding: Finding
) -> Iterator[Finding]:
    if number > max(limit, known.get(key, 0)):
        finding.text += f" ({max(limit, known.get(key, 0))} at most)"
        yield finding
    elif key in known and number <= limit:
        yield Finding("tools/ratchet.txt", 1, "prose", f"{key} needs no exception: remove it")
