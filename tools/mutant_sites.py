"""Finds code that can be taken out of a C++ source: syncs, checks, comparisons of checksums.

Works on text, so it knows the project's style and no more of the language than that. A site is
found or not; one that is found wrongly does not compile, or changes nothing and is never noticed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# Statements that give up, by their beginning; `return` may come before it.
_REFUSALS = r"(?:return\s+)?(?:\w+(?:\.|->))?(?:{names})\("
_KNOWN = ("fail", "std::unexpected", "refuse", "add_bad", "Error", "CorruptError")
_NOTHING = re.compile(r"return (?:false|std::nullopt);")  # a refusal without an error
_CHANGE = re.compile(r"crc|sum|version|unchanged", re.I)
_COPIES = ("src/arena/", "src/device/", "src/staging/")
_SAME_SUMS = re.compile(r"\breturn ((?=[^;]*(?:crc|sums|version))[^;?]+? == [^;?]+);", re.I)
_SYSTEM_SYNC = re.compile(r"::(?:fsync|fdatasync|sync_file_range|renameat2)\(")
# Calls that order the work of a device, or return resources to it.
_DEVICE_CALL = re.compile(
    r"\b(?:\w+->)?driver_\.(?:stream_wait_event|stream_synchronize|stream_destroy|event_record|"
    r"event_synchronize|event_destroy|host_register|host_unregister|primary_context_release)\("
)
_SYNC = re.compile(r"\b(?:\w+(?:\.|->))+(?:sync|sync_dir|flush_range)\(")
_NO_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'""", re.S
)
_OPENING, _CLOSING = "([{", ")]}"


@dataclass(frozen=True)
class Site:
    """One thing to leave out."""

    path: str
    line: int
    kind: str  # "call", "sync", "check", "demand"
    text: str  # the code that is left out, on one line


@dataclass(frozen=True)
class Edit:
    """Text to insert; `{live}` stands for whether the site is left in."""

    site: Site
    begin: int
    end: int
    before: str
    after: str


def masked(text: str) -> str:
    """The text with comments and literals blanked, so that brackets in them don't count."""
    return _NO_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)


def closing(mask: str, opening: int) -> int:
    """The place of the bracket that closes the one at `opening`."""
    depth = 0
    for place in range(opening, len(mask)):
        if mask[place] in _OPENING:
            depth += 1
        elif mask[place] in _CLOSING:
            depth -= 1
            if depth == 0:
                return place
    raise ValueError("a bracket is never closed")


def operands(mask: str, begin: int, end: int, operator: str) -> list[tuple[int, int]]:
    """The parts of an expression between an operator that stands outside of all brackets."""
    parts = []
    depth, start, place = 0, begin, begin
    while place < end:
        depth += (mask[place] in _OPENING) - (mask[place] in _CLOSING)
        if depth == 0 and mask.startswith(operator, place):
            parts.append((start, place))
            place += len(operator)
            start = place
        else:
            place += 1
    return [*parts, (start, end)]


def stripped(text: str, begin: int, end: int) -> tuple[int, int]:
    """The range without the blanks at its ends."""
    part = text[begin:end]
    return begin + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())


def refusing_names(sources: Iterator[str]) -> list[str]:
    """The functions that make an error for their caller to return."""
    found = set(_KNOWN)
    for text in sources:
        found.update(re.findall(r"std::unexpected<Error> (\w+)\(", text))
        found.update(re.findall(r"^Error (\w+)\(", text, re.M))
    return sorted(found)


class Finder:
    """The sites of one file."""

    def __init__(self, path: str, text: str, names: list[str]) -> None:
        self._path = path
        self._text = text
        self._mask = masked(text)
        self._refusal = re.compile(_REFUSALS.format(names="|".join(map(re.escape, names))))

    def edits(self) -> Iterator[Edit]:
        yield from self._calls()
        yield from self._syncs()
        yield from self._conditions()
        yield from self._comparisons()

    def _site(self, kind: str, begin: int, end: int) -> Site:
        line = self._text.count("\n", 0, begin) + 1
        return Site(self._path, line, kind, " ".join(self._text[begin:end].split()))

    def _calls(self) -> Iterator[Edit]:
        for found in re.finditer(r"\bDF_TRY_VOID\(", self._mask):
            end = closing(self._mask, found.end() - 1) + 2  # and the semicolon
            site = self._site("call", found.start(), end)
            yield Edit(site, found.start(), end, "if ({live}) { ", " }")

    def _syncs(self) -> Iterator[Edit]:
        for pattern, otherwise in (
            (_SYSTEM_SYNC, "0"),
            (_DEVICE_CALL, "0"),
            (_SYNC, "Status{}"),
        ):
            for found in pattern.finditer(self._mask):
                begin, end = found.start(), closing(self._mask, found.end() - 1) + 1
                if self._mask[:begin].rstrip().endswith("DF_TRY_VOID(") or self._declares(begin):
                    continue
                site = self._site("sync", begin, end)
                yield Edit(site, begin, end, "({live} ? ", f" : {otherwise})")

    def _declares(self, begin: int) -> bool:
        return self._mask[:begin].rstrip().endswith(("Status", "::"))

    def _conditions(self) -> Iterator[Edit]:
        for found in re.finditer(r"\bif \(", self._mask):
            close = closing(self._mask, found.end() - 1)
            begin = operands(self._mask, found.end(), close, ";")[-1][0]
            if self._is_declaration(begin, close):
                continue
            behind = self._mask[close + 1 :].lstrip(" \n{")
            if self._refusal.match(behind) or self._turns_down(behind, begin, close):
                yield from self._without(begin, close, "||", "check", "{live} && (", ")")
            elif self._demands(behind, begin, close):
                yield from self._without(begin, close, "&&", "demand", "!{live} || (", ")")

    def _comparisons(self) -> Iterator[Edit]:
        """Comparisons of checksums whose outcome a function returns."""
        for found in _SAME_SUMS.finditer(self._mask):
            begin, end = found.span(1)
            yield Edit(self._site("check", begin, end), begin, end, "(!{live} || (", "))")

    def _is_declaration(self, begin: int, end: int) -> bool:
        return re.search(r"[^=!<>]=[^=]", self._mask[begin:end]) is not None

    def _turns_down(self, behind: str, begin: int, end: int) -> bool:
        """A refusal by false or nothing; of copies that mostly only tells whose turn it is."""
        compares = _CHANGE.search(self._text[begin:end]) is not None
        judges = compares or not self._path.startswith(_COPIES)
        return judges and _NOTHING.match(behind) is not None

    def _demands(self, behind: str, begin: int, end: int) -> bool:
        """A condition that must hold; the error follows it."""
        if re.search(r"crc32c\(", self._text[begin:end]) and "==" in self._mask[begin:end]:
            return True
        well = re.match(
            r"(?:return (?:\{\}|true|[\w*]+)|continue);\s*\}?\s*(?:const auto [^;]+;\s*)?", behind
        )
        return well is not None and self._refusal.match(behind[well.end() :]) is not None

    def _without(
        self, begin: int, end: int, operator: str, kind: str, before: str, after: str
    ) -> Iterator[Edit]:
        for part in operands(self._mask, begin, end, operator):
            first, last = stripped(self._text, *part)
            site = self._site(kind, first, last)
            yield Edit(site, first, last, f"({before}", f"{after})")


def rewritten(text: str, edits: list[tuple[int, Edit]]) -> str:
    """The text with all of them in it, by number."""
    inserts: list[tuple[int, int, int, str]] = []
    for number, edit in edits:
        live = f"df_mutant_live({number})"
        size = edit.end - edit.begin
        # At one place an end comes before a beginning, and the longer range is outside.
        inserts.append((edit.begin, 1, -size, edit.before.replace("{live}", live)))
        inserts.append((edit.end, 0, size, edit.after.replace("{live}", live)))
    made, last = [], 0
    for place, _, _, insert in sorted(inserts):
        made += [text[last:place], insert]
        last = place
    return "".join([*made, text[last:]])
