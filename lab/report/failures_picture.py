"""The picture of nodes that fail: `python -m lab.report.failures_picture` draws it anew.

It shows the time that a training loses, out of lab/results/figures.json; as in readme_picture, the
same figures give the same bytes.
"""

import io

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.report.failures_page import LOST, NAMES, column, heading
from lab.report.plots import Series, draw_curve, on_logarithms
from lab.report.quoted import quoted
from lab.report.readme_picture import ROOT, SETTINGS, TEXT
from lab.report.results import SEPARATOR, Row
from lab.simulation.lost_time import NT3, OFTEN, PARITY, SCHEMES, SHARDED, STRATEGIES, Assumed
from lab.simulation.model import NODES

PICTURE = ROOT / "docs" / "figures" / "node_failures.svg"
SECTION = "node-failures"
# Heading of the part, and the words above its curves.
PARTS = {
    heading(NT3, Assumed()): "1.24 GB that all nodes have,\n5 years a node",
    heading(SHARDED, Assumed()): "shards of 16 GB on each,\n5 years a node",
    heading(SHARDED, OFTEN): "shards of 16 GB on each,\n264 days a node",
}
SIZE_INCHES = (8.6, 3.9)
COLOURS = dict.fromkeys(("axes.labelcolor", "xtick.color", "ytick.color"), TEXT)
FOOT = "SIMULATED, not measured. Lines: in the long run. Bands: 5 % to 95 % of runs of 30 days."


def simulated(part: str, name: str) -> dict[int, Row]:
    """By nodes. A strategy that needs two nodes has none for one."""
    alone = name not in (NAMES[strategy] for strategy in SCHEMES)
    return {
        nodes: quoted(SECTION, f"{part}{SEPARATOR}{LOST}", name, column(nodes))
        for nodes in NODES if nodes > 1 or alone
    }  # fmt: skip


def picture() -> str:
    with mpl.rc_context(SETTINGS | COLOURS | {"svg.hashsalt": SECTION}):
        file = io.StringIO()
        drawing().savefig(file, format="svg", transparent=True, metadata={"Date": None})
        return file.getvalue()


def drawing() -> Figure:
    figure = Figure(SIZE_INCHES, layout="constrained")
    for axes, part in zip(figure.subplots(1, len(PARTS), sharey=True), PARTS, strict=True):
        draw_part(axes, part)
    axes.legend(frameon=False, loc="lower right", fontsize=8)
    figure.supylabel("time lost, %", size=9, color=TEXT)
    figure.supxlabel(f"nodes\n{FOOT}", size=8.5, color=TEXT)
    return figure


def draw_part(axes: Axes, part: str) -> None:
    for index, strategy in enumerate(STRATEGIES):
        found = simulated(part, NAMES[strategy])
        points = [(float(nodes), float(row["value"])) for nodes, row in found.items()]
        colour = draw_curve(axes, Series(NAMES[strategy], points, strategy == PARITY), index)
        low, high = ([float(row[end]) for row in found.values()] for end in ("low", "high"))
        axes.fill_between(list(found), low, high, color=colour, alpha=0.15, lw=0)
    on_logarithms(axes)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(PARTS[part], size=9, color=TEXT)


if __name__ == "__main__":
    PICTURE.write_text(picture())
