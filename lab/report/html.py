"""Tables, findings and dot plots as HTML. All text that comes in is escaped here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

from lab.report.findings.common import Finding
from lab.report.table import Cell, Line, Mood, Table

SIMULATED = '<span class="simulated">SIMULATED</span>'


def element(name: str, content: str, **attributes: str) -> str:
    """`content` is HTML; attributes are text, `class_` stands for class."""
    shown = "".join(f' {key.rstrip("_")}="{escape(text)}"' for key, text in attributes.items())
    return f"<{name}{shown}>{content}</{name}>"


def items(texts: Iterable[str]) -> str:
    return element("ul", "".join(element("li", text) for text in texts))


def finding(found: Finding) -> str:
    """The sentence, and the measurements that it rests on where a reader asks for them."""
    count = len(found.rows)
    summary = element("summary", f"{count} measurement{'s' if count != 1 else ''}")
    return escape(found.sentence) + element("details", summary + items(map(escape, found.rows)))


def table(shown: Table) -> str:
    title = ""
    if shown.title:
        title = element("h3", escape(shown.title) + (f" {SIMULATED}" if shown.simulated else ""))
    head = "".join(element("th", escape(name), scope="col") for name in shown.columns)
    body = "".join(line(one, len(shown.columns)) for one in shown.lines)
    whole = element("table", element("thead", element("tr", head)) + element("tbody", body))
    return title + element("div", whole, class_="scroll", tabindex="0") + notes(shown.notes)


def line(shown: Line, columns: int) -> str:
    first, *rest = shown.cells
    rest += [Cell("")] * (columns - len(shown.cells))
    cells = element("th", escape(first.text), scope="row") + "".join(map(cell, rest))
    return element("tr", cells, class_="ours" if shown.ours else "peer")


def cell(shown: Cell) -> str:
    if shown.mood is Mood.PLAIN:
        return element("td", escape(shown.text))
    return element("td", escape(shown.text), class_=shown.mood.value)


def notes(texts: Sequence[str]) -> str:
    return element("div", items(map(escape, texts)), class_="notes") if texts else ""


@dataclass(frozen=True)
class Dot:
    label: str
    median: float
    low: float
    high: float
    ours: bool


def dots(found: Sequence[Dot], shown: Callable[[float], str]) -> str:
    """A dot for each median on a logarithmic axis, on a line from the least to the greatest."""
    least = math.floor(math.log10(min(one.low for one in found)))
    most = max(least + 1, math.ceil(math.log10(max(one.high for one in found))))
    decade = f"--decade: {100 / (most - least):.4f}%"

    def at(value: float) -> float:
        return 100 * (math.log10(value) - least) / (most - least)

    ticks = "".join(
        element("span", escape(shown(10.0**power)), style=f"left: {at(10.0**power):.2f}%")
        for power in range(least, most + 1)
    )
    rows = "".join(dot(one, at, shown) for one in found)
    axis = "<span></span>" + element("div", ticks, class_="ticks") + "<span></span>"
    return element("div", rows + element("div", axis, class_="dot"), class_="dots", style=decade)


def dot(one: Dot, at: Callable[[float], float], shown: Callable[[float], str]) -> str:
    low, high = at(one.low), at(one.high)
    spread = element("i", "", style=f"left: {low:.2f}%; width: {high - low:.2f}%")
    middle = element("u", "", style=f"left: {at(one.median):.2f}%")
    parts = element("span", escape(one.label), class_="who")
    parts += element("div", spread + middle, class_="track")
    parts += element("span", escape(shown(one.median)), class_="value")
    return element("div", parts, class_="dot ours" if one.ours else "dot")
