"""A table of all frameworks from the measurements: `python -m lab.report.frameworks_table DIR`.

Those are what lab.experiments.frameworks and lab.experiments.window wrote with --json.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from lab.report.grid import grid, line_of

TARGET = 0.25
DEEPFREEZE = ("df-default", "df-latency")
NETWORKS = {
    "resnet50": "ResNet-50, Adam, batch 16 of 64x64",
    "nt3": "NT3, 60,483 genes, SGD, batch 5",
}


class Framework(NamedTuple):
    """How one is named, and which of the savers is its own that does not keep training waiting."""

    title: str
    own: str
    own_title: str


FRAMEWORKS = {
    "torch": Framework("PyTorch 2.13", "dcp-async", "`dcp.async_save`"),
    "keras": Framework(
        "Keras 3.15 on TensorFlow 2.21", "tf-checkpoint-async", "`tf.train.Checkpoint`, async"
    ),
    "jax": Framework("JAX 0.10 (Flax NNX, Optax)", "orbax-async", "Orbax, async"),
    "chainer": Framework("Chainer 7.8", "snapshot-thread", "`ThreadWriter`"),
}
TITLES = {
    "none": "none",
    "df-default": "DeepFreeze",
    "df-latency": "DeepFreeze, latency",
    "torch-save": "`torch.save`, fsync",
    "dcp-async": "`dcp.async_save`",
    "keras-save": "`model.save()`, .keras",
    "tf-checkpoint": "`tf.train.Checkpoint`",
    "tf-checkpoint-async": "the same, async, of bare variables",
    "orbax": "Orbax",
    "orbax-async": "Orbax, async",
    "snapshot": "`snapshot`, not compressed",
    "snapshot-thread": "the same by `ThreadWriter` (mixes steps)",
}
INTRODUCTION = f"""\
# Each framework's own writers, beside DeepFreeze

`python -m lab.experiments.frameworks {{keras,jax,chainer}}` and, for torch,
`python -m lab.experiments.window`; how to read it: [lab/README.md](../README.md). Medians of the
rounds [least, greatest]; stalls and times until durable are medians over all saves. Two quiet
cores; where steps without checkpoints spread, so does all else. Raw: frameworks-*.json, of which
`python -m lab.report.frameworks_table DIR` makes it.

What saves add to the run time, over that of the framework's own asynchronous writer. The target is
{TARGET}; *below the noise* is where the own writer's rounds lie on both sides of none. What is
*synced* survives a power cut; Chainer's `ThreadWriter` syncs nothing and writes arrays that
training goes on to change.
"""
HEADINGS = (
    "framework", "network", "every", "DeepFreeze adds", "its own adds", "its own",
    "DeepFreeze over its own",
)  # fmt: skip

Json = dict[str, Any]


class Measured(NamedTuple):
    """One file: a framework with one network, at several intervals."""

    framework: Framework
    network: str
    document: Json


def measurements(folder: Path) -> Iterator[Measured]:
    for name, framework in FRAMEWORKS.items():
        for network in NETWORKS:
            text = (folder / f"frameworks-{name}-{network}.json").read_text()
            yield Measured(framework, network, json.loads(text))


def report(folder: Path) -> str:
    found = list(measurements(folder))
    lines = [INTRODUCTION, *overview(found)]
    for one in found:
        lines += ["", *section(one)]
    return "\n".join(lines) + "\n"


def overview(found: list[Measured]) -> Iterator[str]:
    yield from grid(HEADINGS, ())
    missed = []
    for one in found:
        for experiment in one.document["experiments"]:
            place = (one.framework.title, one.network, interval(experiment))
            rows = {row["saver"]: row for row in experiment["rows"]}
            default, own = rows["df-default"], rows[one.framework.own]
            shares = {name: share(rows[name], own) for name in DEEPFREEZE if name in rows}
            adds = (f"{added(default):+.2f}", f"{added(own):+.2f}")
            yield line_of((*place, *adds, one.framework.own_title, shares_text(shares)))
            if (shares["df-default"] or 0) > TARGET:
                missed.append(f"{', '.join(place)} ({shares['df-default']:.2f})")
    yield ""
    yield f"Above the target: {'; '.join(missed) or 'none'}."


def added(row: Json) -> float:
    return float(row["ratio"]["median"]) - 1


def share(row: Json, own: Json) -> float | None:
    """None where the own writer's cost can't be told from none."""
    return None if own["ratio"]["low"] <= 1 else added(row) / added(own)


def shares_text(shares: dict[str, float | None]) -> str:
    texts = {name: "below the noise" if it is None else f"{it:.2f}" for name, it in shares.items()}
    latency = texts.get("df-latency")
    return texts["df-default"] + (f"; latency: {latency}" if latency else "")


def interval(experiment: Json) -> str:
    return "step" if experiment["every"] == 1 else f"{experiment['every']} steps"


def section(one: Measured) -> Iterator[str]:
    machine = one.document["machine"]
    yield f"## {one.framework.title}, {NETWORKS[one.network]}"
    yield ""
    yield (
        f"`{one.document['command']}`, commit {machine['commit'].rstrip('+')}, "
        f"{machine['date'][:10]}, {machine['cores']} cores ({machine['cpu']}), "
        f"Linux {machine['kernel'].split()[1]}"
    )
    yield ""
    yield "| every | saver | run time | stall, ms | until it is there, ms | size, MB | synced |"
    yield "|---|---|---|---|---|---|---|"
    for experiment in one.document["experiments"]:
        for row in experiment["rows"]:
            yield line_of((interval(experiment), TITLES[row["saver"]], *cells(row)))


def cells(row: Json) -> list[str]:
    if row["saver"] == "none":
        step = row["step_seconds"]
        middle = f"1 = {step['median']:.3g} [{step['low']:.3g}, {step['high']:.3g}] s a step"
        return [middle, "-", "-", "-", "-"]
    ratio = row["ratio"]
    return [
        f"{ratio['median']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]",
        f"{row['stall_p50_seconds'] * 1e3:,.0f}",
        f"{row['durable_p50_seconds'] * 1e3:,.0f}",
        f"{row['file_bytes']['median'] / 1e6:.1f}",
        row["synced"],
    ]


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    (folder / "frameworks.md").write_text(report(folder))
