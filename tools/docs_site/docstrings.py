"""Docstrings as the package writes them, for the reference: a griffe extension.

A line `name: text` about a parameter becomes an entry of its table, and the comment behind an
attribute becomes its description.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Attribute, Docstring, Extension, Function

_ENTRY = re.compile(r"(?P<names>\w+(?:, \w+)*): (?P<text>.*)")


class Docstrings(Extension):  # type: ignore[misc]
    """Changes objects after griffe has read them."""

    def on_function(self, *, func: Function, **_: Any) -> None:
        if func.docstring is not None:
            names = {each.name for each in func.parameters}
            func.docstring.value = with_arguments(func.docstring.value, names)

    def on_attribute(self, *, attr: Attribute, **_: Any) -> None:
        comment = comment_of(attr.source)
        if attr.docstring is None and comment:
            attr.docstring = Docstring(comment, parent=attr)


def with_arguments(text: str, names: set[str]) -> str:
    """The docstring with the lines about parameters as a section that griffe understands."""
    kept: list[str] = []
    told: list[str] = []
    is_told = False
    for line in text.splitlines():
        entry = _ENTRY.fullmatch(line)
        if entry and names.issuperset(entry["names"].split(", ")):
            is_told = True
            told += [f"    {name}: {entry['text']}" for name in entry["names"].split(", ")]
        elif is_told and line.startswith(" "):
            told.append(f"        {line.strip()}")
        else:
            is_told = False
            kept.append(line)
    section = ["", "Args:", *told] if told else []
    return "\n".join([*kept, *section]).strip()


def comment_of(line: str) -> str:
    """The comment at the end of a line, as a sentence."""
    comment = line.partition("  # ")[2].strip()
    return comment[:1].upper() + comment[1:]
