"""Markdown as it is read in the repository, turned into Markdown as MkDocs reads it.

Links out of docs/ lead to a page of the site or become the path as text. Lists are indented by
four spaces and begin after an empty line, as Python's Markdown wants them.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator

_FENCE = re.compile(r" *(```+|~~~+)")
_ITEM = re.compile(r" *(?:[-*+]|\d+\.) +\S")
_FENCED = r"^ *```.*?^ *```"
_CODE = r"(?<!`)(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)"
_LINK = r"(?P<image>!?)\[(?P<text>(?:`[^`]*`|[^\[\]`])*)\]\((?P<target>[^)\s]+)\)"
_NAMED = r"^\[(?P<name>[^\]]+)\]: +(?P<place>\S+)$"
_ANY = re.compile(f"{_FENCED}|{_LINK}|{_NAMED}|{_CODE}", re.MULTILINE | re.DOTALL)
_ELSEWHERE = re.compile(r"[a-z]+:|#")


def for_site(text: str, source: str, place: str, place_of: Callable[[str], str | None]) -> str:
    """The page of a document, which lies at `source` in the repository and `place` on the site."""

    def replaced(match: re.Match[str]) -> str:
        target = match["target"] or match["place"]
        if not target or _ELSEWHERE.match(target):
            return match[0]
        name, mark, heading = target.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), name))
        found = place_of(path)
        if found is None:
            return match[0] if match["place"] else _as_text(match["text"], path)
        led = posixpath.relpath(found, posixpath.dirname(place) or ".") + mark + heading
        if match["place"]:
            return f"[{match['name']}]: {led}"
        return f"{match['image']}[{match['text']}]({led})"

    return "\n".join(_spaced(_ANY.sub(replaced, text).split("\n")))


def _as_text(text: str, path: str) -> str:
    shown = " ".join(text.split())
    return f"`{path}`" if shown.strip("`") in path else f"{shown} (`{path}`)"


def _spaced(lines: list[str]) -> Iterator[str]:
    """The lines with wider indentation within lists."""
    in_list, fence, before = False, None, ""
    for line in lines:
        indent = len(line) - len(line.lstrip(" "))
        wide = indent // 2 * 4 if in_list else indent
        if fence is not None:  # only the fence itself moves
            yield " " * max(0, fence[1] + indent - fence[0]) + line.lstrip(" ")
            fence = None if _FENCE.match(line) else fence
            before = line
            continue
        is_item = bool(_ITEM.match(line))
        if indent == 0 and line and not is_item and (not before or not in_list):
            in_list = False
        if is_item and not in_list and indent < 4:
            if before:
                yield ""
            in_list, wide = True, indent // 2 * 4
        if line.startswith("|") and before and not before.startswith("|"):
            yield ""
        if _FENCE.match(line):
            fence = (indent, wide)
        yield " " * wide + line.lstrip(" ") if line else line
        before = line
