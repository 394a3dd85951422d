"""Plots as inline SVG, in the colours of the page around them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

PEER_COLOURS = 5
# Of the page around them, which sets --ours, --peer and --limit.
STYLE = """
svg { width: 100%; height: auto; max-width: 760px; display: block }
svg text { fill: currentColor; font-size: 12px } .failed { font-style: italic }
rect.ours, circle.ours { fill: var(--ours) } rect.peer { fill: var(--peer) }
polyline { stroke-width: 2 } polyline.ours { stroke: var(--ours) }
.peer0 { fill: #c98500; stroke: #c98500 } .peer1 { fill: #8a63d2; stroke: #8a63d2 }
.peer2 { fill: #2e9d6a; stroke: #2e9d6a } .peer3 { fill: #c2417c; stroke: #c2417c }
.peer4 { fill: #7d8793; stroke: #7d8793 }
svg polyline[points] { fill: none }
.grid { stroke: currentColor; opacity: .15 } .whisker { stroke: currentColor; opacity: .7 }
.limit { stroke: var(--limit); stroke-width: 2; stroke-dasharray: 5 3 }
"""
WIDTH = 720
LABEL_WIDTH = 230
BAR_HEIGHT = 20
PLOT_HEIGHT = 300
MARGIN = 60


@dataclass(frozen=True)
class Bar:
    label: str
    value: float | None  # None where it failed
    low: float = 0.0
    high: float = 0.0
    note: str = ""
    ours: bool = False


@dataclass(frozen=True)
class Series:
    label: str
    points: Sequence[tuple[float, float]]
    ours: bool = False


def bars(
    found: Sequence[Bar], unit: str, *, line: float | None = None, line_label: str = ""
) -> str:
    """Horizontal, with whiskers from least to greatest; a line for a limit."""
    top = max([bar.high or bar.value or 0 for bar in found] + [line or 0]) or 1.0
    scale = (WIDTH - LABEL_WIDTH - 110) / top
    parts = [bar_parts(bar, index, scale, unit) for index, bar in enumerate(found)]
    height = len(found) * BAR_HEIGHT + 24
    if line is not None:
        x = LABEL_WIDTH + line * scale
        parts.append(
            f'<line class="limit" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height - 18}"/>'
            f'<text x="{x:.1f}" y="{height - 4}" text-anchor="middle">{escape(line_label)}</text>'
        )
    return svg(height, parts)


def bar_parts(bar: Bar, index: int, scale: float, unit: str) -> str:
    y = index * BAR_HEIGHT
    kind = "ours" if bar.ours else "peer"
    label = f'<text x="{LABEL_WIDTH - 8}" y="{y + 14}" text-anchor="end">{escape(bar.label)}</text>'
    if bar.value is None:
        note = escape(bar.note)
        return f'{label}<text class="failed" x="{LABEL_WIDTH}" y="{y + 14}">{note}</text>'
    length, low, high = bar.value * scale, bar.low * scale, bar.high * scale
    middle = y + BAR_HEIGHT / 2
    end = LABEL_WIDTH + max(length, high) + 6
    return (
        f'{label}<rect class="{kind}" x="{LABEL_WIDTH}" y="{y + 3}" width="{length:.1f}" '
        f'height="{BAR_HEIGHT - 6}"/><line class="whisker" x1="{LABEL_WIDTH + low:.1f}" '
        f'x2="{LABEL_WIDTH + high:.1f}" y1="{middle}" y2="{middle}"/>'
        f'<text x="{end:.1f}" y="{y + 14}">{number(bar.value)} {escape(unit)}</text>'
    )


def curves(found: Sequence[Series], across: str, up: str) -> str:
    """Both axes logarithmic."""
    points = [point for series in found for point in series.points if min(point) > 0]
    if not points:
        return ""
    xs, ys = zip(*points, strict=True)
    horizontal, vertical = Axis(xs, MARGIN, WIDTH - 190), Axis(ys, PLOT_HEIGHT - 30, 10)
    parts = [*grid(horizontal, vertical), axis_names(across, up)]
    parts += [curve(one, index, horizontal, vertical) for index, one in enumerate(found)]
    return svg(PLOT_HEIGHT + 20, parts)


class Axis:
    """From powers of ten to places on the page."""

    def __init__(self, values: Sequence[float], begin: float, end: float) -> None:
        self.least = math.floor(math.log10(min(values)))
        self.most = max(self.least + 1, math.ceil(math.log10(max(values))))
        self.begin, self.end = begin, end

    def at(self, value: float) -> float:
        share = (math.log10(value) - self.least) / (self.most - self.least)
        return self.begin + share * (self.end - self.begin)

    def ticks(self) -> list[float]:
        return [10.0**power for power in range(self.least, self.most + 1)]


def grid(horizontal: Axis, vertical: Axis) -> list[str]:
    parts = []
    for value in horizontal.ticks():
        x = horizontal.at(value)
        parts.append(
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{vertical.begin}" '
            f'y2="{vertical.end}"/><text x="{x:.1f}" y="{vertical.begin + 14}" '
            f'text-anchor="middle">{number(value)}</text>'
        )
    for value in vertical.ticks():
        y = vertical.at(value)
        parts.append(
            f'<line class="grid" x1="{horizontal.begin}" x2="{horizontal.end}" y1="{y:.1f}" '
            f'y2="{y:.1f}"/><text x="{horizontal.begin - 6}" y="{y + 4:.1f}" '
            f'text-anchor="end">{number(value)}</text>'
        )
    return parts


def axis_names(across: str, up: str) -> str:
    return (
        f'<text x="{(MARGIN + WIDTH - 190) / 2}" y="{PLOT_HEIGHT + 12}" text-anchor="middle">'
        f'{escape(across)}</text><text x="12" y="{PLOT_HEIGHT / 2}" text-anchor="middle" '
        f'transform="rotate(-90 12 {PLOT_HEIGHT / 2})">{escape(up)}</text>'
    )


def curve(series: Series, index: int, horizontal: Axis, vertical: Axis) -> str:
    places = [(horizontal.at(x), vertical.at(y)) for x, y in series.points if min(x, y) > 0]
    kind = "ours" if series.ours else f"peer{index % PEER_COLOURS}"
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = "".join(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in places)
    y = 20 + 18 * index
    key = f'<rect class="{kind}" x="{WIDTH - 180}" y="{y - 9}" width="10" height="10"/>'
    key += f'<text x="{WIDTH - 164}" y="{y}">{escape(series.label)}</text>'
    return f'<polyline class="{kind}" points="{path}"/>{dots}{key}'


def svg(height: float, parts: Sequence[str]) -> str:
    body = "".join(parts)
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{body}</svg>'


def number(value: float) -> str:
    """Three digits that count."""
    if value == 0:
        return "0"
    if abs(value) >= 1e6 or abs(value) < 1e-3:
        return f"{value:.0e}".replace("e+0", "e").replace("e-0", "e-")
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
