"""The pictures of every page: drawn by matplotlib, as SVG that stands in the page itself."""

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

WIDTH_INCHES, BAR_INCHES, CURVES_INCHES = 9.0, 0.26, 3.8
OURS, PEER, LIMIT, TEXT = "#1769d2", "#98a1ad", "#d2451e", "#1c2430"
PEERS = ("#c98500", "#8a63d2", "#2e9d6a", "#c2417c", "#7d8793")
# The page's own colours, which follow the reader's light or dark theme.
VARIABLES = {OURS: "var(--ours)", PEER: "var(--peer)", LIMIT: "var(--limit)", TEXT: "currentColor"}
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none", "svg.hashsalt": "lab", "text.parse_math": False, "font.size": 9,
    "font.family": "sans-serif", "text.color": TEXT, "axes.labelcolor": TEXT,
    "xtick.color": TEXT, "ytick.color": TEXT,
}  # fmt: skip
ELSEWHERE = re.compile(r' xmlns(?::\w+)?="[^"]*"')  # names of formats, which a page need not have


@dataclass(frozen=True)
class Bar:
    """One measurement; `value` is None where it failed, and `note` says so."""

    label: str
    value: float | None
    low: float = 0.0
    high: float = 0.0
    note: str = ""
    ours: bool = False

    @property
    def colour(self) -> str:
        return OURS if self.ours else PEER


@dataclass(frozen=True)
class Series:
    label: str
    points: Sequence[tuple[float, float]]
    ours: bool = False


def bars(found: Sequence[Bar], unit: str, *, line: float | None = None, label: str = "") -> str:
    """Horizontal, with whiskers from least to greatest; a line for a limit."""
    axes = rows_of(found)
    top = max([bar.high or bar.value or 0 for bar in found] + [line or 0]) or 1.0
    for place, bar in enumerate(found):
        if bar.value is None:
            axes.text(0, place, f" {bar.note}", va="center", style="italic")
            continue
        axes.barh(place, bar.value, 0.7, color=bar.colour, clip_on=False)
        axes.plot([bar.low, bar.high], [place] * 2, color=TEXT, lw=1, clip_on=False)
        end = max(bar.value, bar.high)
        axes.text(end, place, f"  {number(bar.value)} {unit}", va="center")
    if line is not None:
        axes.axvline(line, color=LIMIT, ls="--", clip_on=False)
        axes.text(line, len(found) - 0.3, label, ha="center", va="top", color=LIMIT)
    axes.set_xlim(0, 1.15 * top)
    axes.set_xticks([])
    return svg(axes)


def dots(found: Sequence[Bar], shown: Callable[[float], str]) -> str:
    """A dot for each median on a logarithmic axis, on a line from the least to the greatest."""
    axes = rows_of(found)
    axes.set_xscale("log")
    for place, one in enumerate(found):
        assert one.value is not None
        axes.plot([one.low, one.high], [place] * 2, color=one.colour, lw=3, clip_on=False)
        axes.plot(one.value, place, "o", color=one.colour, clip_on=False)
        axes.text(1.01, place, shown(one.value), va="center", transform=axes.get_yaxis_transform())
    axes.xaxis.set_major_formatter(lambda value, _: shown(value))
    gridded(axes)
    return svg(axes)


def curves(found: Sequence[Series], across: str, up: str) -> str:
    """Both axes logarithmic; empty where there is no point that can stand there."""
    drawn = [(one, [point for point in one.points if min(point) > 0]) for one in found]
    if not any(points for _, points in drawn):
        return ""
    axes = axes_of(CURVES_INCHES)
    for index, (one, points) in enumerate(drawn):
        draw_curve(axes, replace(one, points=points), index)
    on_logarithms(axes)
    axes.set(xlabel=across, ylabel=up)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return svg(axes)


def draw_curve(axes: Axes, one: Series, index: int) -> str:
    """Returns its colour."""
    colour = OURS if one.ours else PEERS[index % len(PEERS)]
    xs, ys = zip(*one.points, strict=True) if one.points else ((), ())
    axes.plot(xs, ys, "o-", color=colour, lw=2, ms=4, label=one.label, clip_on=False)
    return colour


def on_logarithms(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: number(value))
    gridded(axes)


def rows_of(found: Sequence[Bar]) -> Axes:
    """A line for each, the first at the top."""
    axes = axes_of(BAR_INCHES * len(found) + 0.6)
    axes.set_yticks(range(len(found)), [one.label for one in found])
    axes.set_ylim(len(found) - 0.4, -0.6)
    return axes


def axes_of(height: float) -> Axes:
    with mpl.rc_context(SETTINGS):
        axes = Figure((WIDTH_INCHES, height), layout="constrained").subplots()
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)
    return axes


def gridded(axes: Axes) -> None:
    axes.grid(color=PEER, alpha=0.3, clip_on=False)
    axes.minorticks_off()


def svg(axes: Axes) -> str:
    """It needs nothing from elsewhere, and the page says how large it is."""
    written = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with mpl.rc_context(SETTINGS):
        assert axes.figure is not None
        axes.get_figure(root=True).savefig(  # type: ignore[union-attr]
            written, format="svg", transparent=True, metadata=nothing
        )
    text = ELSEWHERE.sub("", written.getvalue().partition("<svg")[2])
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, variable)
    return f'<svg role="img"{text.rstrip()}'


def number(value: float) -> str:
    """Three digits that count."""
    if value == 0:
        return "0"
    if abs(value) >= 1e6 or abs(value) < 1e-3:
        return f"{value:.0e}".replace("e+0", "e").replace("e-0", "e-")
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
