"""What DeepFreeze's save() costs a tensor, beside the framework's own state_dict().

The copy is in it: from outside the two can't be told apart.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

import deepfreeze as df
from lab.measure.files import scratch
from lab.programs.answer import carry_out

LATER = 5
ELEMENTS = 256  # of a tensor: small, so that little of it is the copy


class Many(nn.Module):
    """Nothing but parameters."""

    def __init__(self, count: int) -> None:
        super().__init__()
        for index in range(count):
            self.register_parameter(f"weight{index}", nn.Parameter(torch.ones(ELEMENTS)))


def timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def measure(count: int, directory: Path) -> dict[str, Any]:
    model = Many(count)
    dictionary = median(timed(model.state_dict) for _ in range(LATER))
    calls = []
    with df.Checkpointer(directory / "run", keep=df.keep(last=1)) as checkpointer:
        for step in range(LATER + 1):
            began = time.perf_counter()
            checkpointer.save(step, {"model": model})
            calls.append(time.perf_counter() - began)
            checkpointer.wait()
    return {
        "tensor_count": count,
        "state_dict_seconds": dictionary,
        "first_call_seconds": calls[0],
        "later_call_seconds": median(calls[1:]),
    }


def work(request: dict[str, Any]) -> dict[str, Any]:
    with scratch(Path(request["directory"]), "planning-") as place:
        return measure(request["count"], place)


if __name__ == "__main__":
    sys.exit(carry_out(sys.argv[1:], work))
