"""How much a layer's activations at one step are like those at another: linear CKA.

Kornblith, Norouzi, Lee, Hinton: Similarity of Neural Network Representations Revisited, ICML 2019.
For activations X (n x p) and Y (n x q) of the same n inputs, columns centred (section 3):

    CKA(X, Y) = |Y' X|^2 / (|X' X| |Y' Y|)    with Frobenius norms

1 means the same up to rotation and scale. A few outliers can change it much (Davari et al.,
Reliability of CKA as a Similarity Measure in Deep Learning, ICLR 2023): look, don't conclude.

    python -m examples.analysis.cka RUN    # trains first, if RUN has no checkpoints
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor

import deepfreeze as df
from examples.analysis.digits import Digits, digits, network, train
from examples.analysis.matrix_file import write_matrix

_LAYERS = 4  # of the network, up to the activations of its last hidden layer


def linear_cka(x: Tensor, y: Tensor) -> float:
    """Of activations (n, p) and (n, q); from 0 to 1."""
    x, y = ((each - each.mean(dim=0)).double() for each in (x, y))
    cross = (y.T @ x).square().sum()
    return float(cross / ((x.T @ x).norm() * (y.T @ y).norm()))


def activations(run: Path, data: Digits) -> dict[int, Tensor]:
    """Those of the last hidden layer for the probe, at each step of the run."""
    model = network()
    found = {}
    for each in df.checkpoints(run):
        df.load_into(model, run, each.step)
        with torch.no_grad():
            found[each.step] = model[:_LAYERS](data.probe)
    return found


def between_steps(run: Path, data: Digits) -> tuple[list[int], list[list[float]]]:
    """The run's steps, and the CKA of each with each."""
    found = activations(run, data)
    return list(found), [[linear_cka(x, y) for y in found.values()] for x in found.values()]


def write(run: Path, steps: list[int], values: list[list[float]]) -> Path:
    """Steps x steps, for the page."""
    return write_matrix(
        run,
        "cka",
        "Linear CKA of the last hidden layer between steps",
        "CKA",
        ("step", steps),
        ("step", steps),
        values,
        "1: the same activations up to rotation and scale.",
    )


def main(run: Path) -> None:
    data = digits()
    steps, values = between_steps(train(run, data), data)
    print(f"CKA of step {steps[0]} with step {steps[-1]}: {values[0][-1]:.3f}")
    print(f"{write(run, steps, values)}: see it by `deepfreeze explore {run}`")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
