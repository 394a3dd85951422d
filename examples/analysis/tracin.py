"""Finds wrong labels by TracIn: how much each example's updates lowered its own loss.

TracInCP (Pruthi, Liu, Kale, Sundararajan: Estimating Training Data Influence by Tracing Gradient
Descent, NeurIPS 2020) sums over checkpoints: learning rate x gradient of one example's loss x
gradient of another's. An example that the others contradict has the greatest influence on itself.
Captum computes it; the checkpoints and their learning rates are DeepFreeze's.

    python -m examples.analysis.tracin RUN    # trains first, if RUN has no checkpoints
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from captum.influence import TracInCP
from torch import Tensor, nn

import deepfreeze as df
from examples.analysis.digits import Digits, digits, network, train
from examples.analysis.matrix_file import write_matrix

_BATCH = 250
_SHOWN = 60  # examples in the file


def self_influence(run: Path, data: Digits) -> tuple[list[int], Tensor]:
    """The run's steps, and each example's influence on itself at each: (examples, steps)."""
    model = network()
    dataset = torch.utils.data.TensorDataset(data.images, data.labels)
    steps = [each.step for each in df.checkpoints(run)]

    def load(model: nn.Module, step: int) -> float:
        return float(df.load_into(model, run, step)[0]["lr"])

    tracin = TracInCP(
        model,
        dataset,
        steps,
        load,
        loss_fn=nn.CrossEntropyLoss(reduction="sum"),
        batch_size=_BATCH,
        sample_wise_grads_per_batch=True,
    )
    columns = []
    for step in steps:
        tracin.checkpoints = [step]
        columns.append(tracin.self_influence())
    return steps, torch.stack(columns, dim=1)


def suspects(influence: Tensor, count: int) -> list[int]:
    """The examples that influence themselves most, the first of them first."""
    return [int(each) for each in influence.sum(dim=1).argsort(descending=True)[:count]]


def precision(found: list[int], data: Digits) -> float:
    """The share of wrong labels among those found. By chance: wrong labels / all labels."""
    return len(data.planted.intersection(found)) / len(found)


def write(run: Path, data: Digits, steps: list[int], influence: Tensor) -> Path:
    """The suspects x steps, for the page."""
    rows = suspects(influence, _SHOWN)
    right = [len(data.planted.intersection(rows[:count])) for count in (20, _SHOWN)]
    return write_matrix(
        run,
        "tracin",
        "Influence of examples on themselves (TracIn)",
        "learning rate x squared gradient",
        ("example", [f"{row}, labelled {int(data.labels[row])}" for row in rows]),
        ("step", steps),
        influence[rows].tolist(),
        f"The {_SHOWN} most suspicious of {len(data.labels)} examples. {right[0]} of the first 20 "
        f"labels are wrong, {right[1]} of all {_SHOWN}.",
    )


def main(run: Path) -> None:
    data = digits()
    steps, influence = self_influence(train(run, data), data)
    chance = len(data.planted) / len(data.labels)
    for count in (10, 50, len(data.planted)):
        share = precision(suspects(influence, count), data)
        print(f"wrong labels among the first {count}: {share:.0%}; by chance {chance:.0%}")
    print(f"{write(run, data, steps, influence)}: see it by `deepfreeze explore {run}`")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
