"""Resumes a deterministic training from states with flipped bits; tells how the loss ends."""

import copy
import math
import sys
from collections import OrderedDict
from random import Random
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from lab.faults.bit_flips import CLASSES, Floats, digest, draw, flip
from lab.programs import sdc_state
from lab.programs.answer import carry_out
from lab.programs.sdc_state import (
    ADAM,
    BATCH,
    CHECKPOINT_STEP,
    HIDDEN,
    INPUTS,
    MODEL,
    MOMENTUM,
    ROWS,
    SLOTS,
    STATISTICS,
    STEPS,
)

RATES = {ADAM: 1e-3, MOMENTUM: 0.01}
DROPOUT = 0.1
LOGGED_MAX = 10  # flips of one trial: longer logs are kept as their digest


def network() -> nn.Module:
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for index, (inputs, outputs) in enumerate(sdc_state.WIDTHS):
        layers[f"dense{index}"] = nn.Linear(inputs, outputs)
        if index < len(sdc_state.WIDTHS) - 1:
            layers[f"norm{index}"] = nn.BatchNorm1d(HIDDEN)
            layers[f"relu{index}"] = nn.ReLU()
            layers[f"dropout{index}"] = nn.Dropout(DROPOUT)
    return nn.Sequential(layers)


def optimizer_of(kind: str, network: nn.Module) -> torch.optim.Optimizer:
    if kind == ADAM:
        return torch.optim.Adam(network.parameters(), RATES[ADAM])
    return torch.optim.SGD(network.parameters(), RATES[MOMENTUM], momentum=0.9)


class Training:
    """Deterministic: one thread, and generators that are part of the state."""

    def __init__(self, seed: int, kind: str) -> None:
        torch.manual_seed(seed)
        self.kind = kind
        self.network = network()
        self.optimizer = optimizer_of(kind, self.network)
        wanted = torch.randn(INPUTS, sdc_state.CLASSES)
        self.x, self.held_out = torch.randn(ROWS, INPUTS), torch.randn(ROWS, INPUTS)
        self.y, self.held_out_y = (
            (x @ wanted).argmax(1) for x in (self.x, self.held_out)
        )  # fmt: skip
        self.step = 0

    def train(self, until: int) -> float:
        """The loss of the last step."""
        last = math.nan
        self.network.train()
        while self.step < until:
            begin = self.step * BATCH % ROWS
            rows = slice(begin, begin + BATCH)
            self.optimizer.zero_grad()
            loss: Tensor = nn.functional.cross_entropy(self.network(self.x[rows]), self.y[rows])
            loss.backward()
            self.optimizer.step()
            last = loss.item()
            self.step += 1
        return last

    def evaluate(self) -> float:
        """By the running statistics, which no step of training uses."""
        self.network.eval()
        with torch.no_grad():
            loss: Tensor = nn.functional.cross_entropy(
                self.network(self.held_out), self.held_out_y
            )  # fmt: skip
        return loss.item()

    def state(self) -> dict[str, Any]:
        return copy.deepcopy({
            "model": self.network.state_dict(), "optimizer": self.optimizer.state_dict(),
            "rng": torch.get_rng_state(), "step": self.step,
        })  # fmt: skip

    def load(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["model"])
        self.optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
        torch.set_rng_state(state["rng"])
        self.step = state["step"]

    def names(self, component: str) -> list[str]:
        return list(sdc_state.shapes(component, self.kind))

    def arrays(self, component: str) -> dict[str, Floats]:
        """Those of the live state, by the names of sdc_state."""
        if component == STATISTICS:
            found = dict(self.network.named_buffers())
        elif component == MODEL:
            found = dict(self.network.named_parameters())
        else:
            found = {
                f"{name}.{slot}": self.optimizer.state[parameter][slot]
                for name, parameter in self.network.named_parameters()
                for slot in SLOTS[self.kind]
            }
        return {name: found[name].detach().numpy() for name in self.names(component)}


def ended(training: Training) -> tuple[float, float]:
    """From there on: the loss of the last step, and of held-out rows after it."""
    trained = training.train(STEPS)
    return trained, training.evaluate()


def trial(
    training: Training, state: dict[str, Any], asked: dict[str, Any], seed: str
) -> dict[str, Any]:
    training.load(state)
    component = asked["component"]
    sizes = sdc_state.sizes(component, training.kind)
    spots = draw(Random(seed), sizes, CLASSES[asked["bits"]], asked["flips"])
    log = flip(training.arrays(component), spots)
    trained, evaluated = ended(training)
    kept: dict[str, Any] = {"log": log} if len(log) <= LOGGED_MAX else {"digest": digest(log)}
    return {"seed": seed, "trained": finite(trained), "evaluated": finite(evaluated), **kept}


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def work(request: dict[str, Any]) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    training = Training(request["seed"], request["optimizer"])
    training.train(CHECKPOINT_STEP)
    state = training.state()
    training.load(state)
    base = ended(training)
    training.load(state)
    if ended(training) != base:
        raise RuntimeError("a resume without any flip does not end as the first one did")
    measured = [
        {**asked, "trials": [trial(training, state, asked, seed) for seed in asked["seeds"]]}
        for asked in request["asked"]
    ]
    return {"trained": base[0], "evaluated": base[1], "measured": measured,
            "version": str(torch.__version__), "numpy": numpy.__version__}  # fmt: skip


if __name__ == "__main__":
    sys.exit(carry_out(sys.argv[1:], work))
