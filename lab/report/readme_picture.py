"""The picture of README.md: `python -m lab.report.readme_picture` draws it anew.

It shows the run time of a training that saves at every step, beside each framework's own writers,
out of lab/results/figures.json. Text stays text in the SVG, and the same figures give the same
bytes. The colours can be read on a white page and on a dark one.
"""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.report.quoted import quoted
from lab.report.results import Row

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "figures" / "every_step.svg"
SECTION, NETWORK, COLUMN = "frameworks", "ResNet-50, Adam, batch 16 of 64x64", "run time"
OURS, PEER, TRAINING, TEXT = "#2477dd", "#c98500", "#98a1ad", "#737b86"
WIDTH_INCHES, ROW_INCHES, BAR, GAP = 8.6, 0.24, 0.74, 0.6
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none", "svg.hashsalt": "readme", "text.parse_math": False, "font.size": 10,
    "font.family": "sans-serif", "text.color": TEXT,
}  # fmt: skip
FOOT = (
    "ResNet-50 with Adam, 307 MB of state, a checkpoint at every step, 2 cores. "
    "Medians of 2 or 4 rounds; lines: best to worst."
)


@dataclass(frozen=True)
class Group:
    """A framework, and of its writers the rows of results and their names in the picture."""

    title: str
    results: str
    writers: dict[str, str]


GROUPS = (
    Group("PyTorch", "PyTorch 2.13", {
        "DeepFreeze": "DeepFreeze",
        "`torch.save`, fsync": "torch.save + fsync",
        "`dcp.async_save`": "dcp.async_save",
    }),
    Group("Keras on\nTensorFlow", "Keras 3.15 on TensorFlow 2.21", {
        "DeepFreeze": "DeepFreeze",
        "the same, async, of bare variables": "tf.train.Checkpoint, async",
        "`tf.train.Checkpoint`": "tf.train.Checkpoint",
        "`model.save()`, .keras": "model.save()",
    }),
    Group("JAX", "JAX 0.10 (Flax NNX, Optax)", {
        "DeepFreeze": "DeepFreeze",
        "Orbax, async": "Orbax, async",
        "Orbax": "Orbax",
    }),
    Group("Chainer", "Chainer 7.8", {
        "DeepFreeze": "DeepFreeze",
        "the same by `ThreadWriter` (mixes steps)": "snapshot, ThreadWriter",
        "`snapshot`, not compressed": "snapshot",
    }),
)  # fmt: skip


def measured(group: Group, writer: str) -> Row:
    return quoted(SECTION, f"{group.results}, {NETWORK} / every step", writer, COLUMN)


def height() -> float:
    return sum(len(group.writers) + GAP for group in GROUPS)


def picture() -> str:
    with mpl.rc_context(SETTINGS):
        file = io.StringIO()
        drawing().savefig(file, format="svg", transparent=True, metadata={"Date": None})
        return file.getvalue()


def drawing() -> Figure:
    figure = Figure(figsize=(WIDTH_INCHES, ROW_INCHES * (height() + 2.2)))
    axes = figure.add_axes((0.345, 0.085, 0.6, 0.835))
    place = 0.0
    for group in GROUPS:
        draw_group(axes, group, place)
        place += len(group.writers) + GAP
    finish(axes)
    figure.text(0.01, 0.02, FOOT, size=8.5)
    return figure


def draw_group(axes: Axes, group: Group, place: float) -> None:
    across = axes.get_yaxis_transform()
    middle = place + (len(group.writers) - 1) / 2
    axes.text(-0.56, middle, group.title, transform=across, va="center", weight="bold")
    for row, (writer, name) in enumerate(group.writers.items()):
        draw_bar(axes, place + row, name, measured(group, writer))


def draw_bar(axes: Axes, place: float, name: str, row: Row) -> None:
    ours = name == "DeepFreeze"
    colour, weight = (OURS, "bold") if ours else (PEER, "normal")
    axes.barh(place, 1.0, BAR, color=TRAINING, alpha=0.45)
    axes.barh(place, row["value"] - 1, BAR, left=1.0, color=colour)
    axes.plot([row["low"], row["high"]], [place] * 2, color=TEXT, lw=1.2)
    end = max(row["value"], row["high"])
    axes.text(end + 0.04, place, f"{row['value']:.2f}", va="center", weight=weight,
              color=OURS if ours else TEXT)  # fmt: skip
    axes.text(-0.02, place, name, transform=axes.get_yaxis_transform(), ha="right", va="center",
              weight=weight, color=OURS if ours else TEXT)  # fmt: skip


def finish(axes: Axes) -> None:
    axes.set_axis_off()
    axes.set_xlim(0, 4.9)
    axes.set_ylim(height() - GAP - 0.4, -0.6)
    axes.text(0.5, -0.75, "training", ha="center", va="bottom")
    axes.text(1.03, -0.75, "added by checkpoints", ha="left", va="bottom")
    axes.text(-0.56, -0.75, "Run time, 1 = no checkpoints", ha="left", va="bottom",
              transform=axes.get_yaxis_transform(), weight="bold")  # fmt: skip


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(picture())
