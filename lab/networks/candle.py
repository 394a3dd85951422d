"""CANDLE's networks of several inputs (Pilot 1), written from the benchmarks' specifications.

What a drug or a cell line is described by goes through a tower of dense layers, one for each kind
of description, whichever input it stands in; a head of the same form makes one number of all.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lab.networks.torch_networks import dense

WIDTH, DEPTH = 1000, 3


def tower(inputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for index in range(DEPTH):
        layers += [dense(WIDTH if index else inputs, WIDTH), nn.ReLU()]
    return nn.Sequential(*layers)


class SharedTowers(nn.Module):
    """`features` has the length of each kind, `inputs` the kinds in order; then come the doses.

    They stand side by side in one tensor, `length` numbers for each sample.
    """

    def __init__(self, features: dict[str, int], inputs: tuple[str, ...], doses: int = 0) -> None:
        super().__init__()
        self.inputs = inputs
        self.lengths = [*(features[name] for name in inputs), doses]
        self.towers = nn.ModuleDict({name: tower(length) for name, length in features.items()})
        self.head = tower(len(inputs) * WIDTH + doses)
        self.out = dense(WIDTH, 1)

    @property
    def length(self) -> int:
        return sum(self.lengths)

    def forward(self, x: Tensor) -> Tensor:
        *parts, doses = x.split(self.lengths, 1)
        towers = [self.towers[name](part) for name, part in zip(self.inputs, parts, strict=True)]
        response: Tensor = self.out(self.head(torch.cat([*towers, doses], 1)))
        return response


def combo() -> SharedTowers:
    """How a cell line responds to a pair of drugs: 13,742,001 parameters."""
    return SharedTowers({"cell": 923, "drug": 3809}, ("cell", "drug", "drug"))


def uno() -> SharedTowers:
    """The same with doses, and two descriptions of each drug: 21,275,001 parameters."""
    drug = ("descriptors", "fingerprints")
    features = {"cell": 942, "descriptors": 5270, "fingerprints": 2048}
    return SharedTowers(features, ("cell", *drug, *drug), doses=2)
