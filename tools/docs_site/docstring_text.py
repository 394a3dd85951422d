"""Docstrings of the package as griffe understands them: texts in, texts out."""

from __future__ import annotations

import re
from collections.abc import Iterator

_ENTRY = re.compile(r"(?P<names>\w+(?:, \w+)*): (?P<text>.*)")
_FIELD = re.compile(r"    (?P<name>[a-z]\w*): [^#]*?(?:  # (?P<comment>.*))?")
_COMMENT = re.compile(r"    # (?P<text>.*)")


def with_arguments(text: str, names: set[str]) -> str:
    """The docstring with the lines about parameters as a section that griffe understands."""
    kept: list[str] = []
    told: dict[str, list[str]] = {}
    now: list[str] = []  # the parameters of the line before
    for line in text.splitlines():
        entry = _ENTRY.fullmatch(line)
        if entry and names.issuperset(entry["names"].split(", ")):
            now = entry["names"].split(", ")
            told |= {name: [entry["text"]] for name in now}
        elif now and line.startswith(" "):
            for name in now:
                told[name].append(line.strip())
        else:
            now = []
            kept.append(line)
    lines = [f"    {name}: {' '.join(texts)}" for name, texts in told.items()]
    return "\n".join([*kept, *(["", "Args:", *lines] if lines else [])]).strip()


def with_fields(text: str, lines: list[str]) -> str:
    """The docstring with the fields of a dataclass, from the lines of its source."""
    entries = [f"    {name}: {comment}" for name, comment in _fields(lines)]
    return "\n".join([text, "", "Attributes:", *entries]) if entries else text


def _fields(lines: list[str]) -> Iterator[tuple[str, str]]:
    above: list[str] = []
    for line in lines:
        if comment := _COMMENT.fullmatch(line):
            above.append(comment["text"])
            continue
        if line.startswith("    def "):
            return
        if field := _FIELD.fullmatch(line):
            told = field["comment"] or " ".join(above) or field["name"].replace("_", " ")
            yield field["name"], told[:1].upper() + told[1:]
        above = []
