"""The layouts of the workloads: those of torch_workloads.py, and states that no network has.

As a program it writes the layout of one workload: for a process that imports no framework.
"""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lab.networks.layout import Layout, TensorSpec, small_tensors, tiny
from lab.networks.torch_workloads import WORKLOADS, Training
from lab.programs.answer import carry_out


def of_network(name: str) -> Layout:
    """Of model and optimizer after a step; computed without memory for them."""
    with torch.device("meta"):
        parts = WORKLOADS[name].make_parts()
    training = Training(parts)
    for parameter in parts.model.parameters():
        parameter.grad = torch.empty_like(parameter)
    for optimizer in training.optimizers.values():
        optimizer.step()
    specs = (spec(key, tensor) for key, tensor in named("", training.state_dicts()))
    return Layout(name, WORKLOADS[name].title.partition(", batch")[0], tuple(specs))


def named(prefix: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield prefix, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from named(f"{prefix}.{name}" if prefix else str(name), item)


def spec(name: str, tensor: Tensor) -> TensorSpec:
    return TensorSpec(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


NETWORKS = (
    "resnet50", "resnet152", "nt3", "nt3-6k", "nt3-1k", "p1b1", "p1b1-6k", "combo", "uno", "mlp",
)  # fmt: skip
LAYOUTS: dict[str, Callable[[], Layout]] = {
    **{name: partial(of_network, name) for name in NETWORKS},
    "small10k": lambda: small_tensors(10_000),
    "tiny": tiny,
}


def work(request: dict[str, str]) -> None:
    LAYOUTS[request["workload"]]().write(Path(request["layout"]))


if __name__ == "__main__":
    sys.exit(carry_out(sys.argv[1:], work))
