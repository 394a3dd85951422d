"""What DeepFreeze's save() costs a tensor, beside the framework's own state_dict().

Prints JSON. The copy is in it: from outside the two can't be told apart.
"""

import json
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


def main(arguments: list[str]) -> int:
    count, directory, answer = int(arguments[0]), Path(arguments[1]), Path(arguments[2])
    with scratch(directory, "planning-") as place:
        answer.write_text(json.dumps(measure(count, place)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
