"""Helpers that several tests share."""

import json
import math
from collections import defaultdict, deque
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import deepfreeze as df
from deepfreeze.frameworks.torch.tensors import copyable


def save(ckpt: df.Checkpointer, step: int, state: object, **more: Any) -> df.SaveHandle:
    """Saves and waits until it is durable."""
    handle = ckpt.save(step, state, **more)
    assert handle is not None
    handle.wait("durable", timeout=120)
    return handle


def round_trip(ckpt: df.Checkpointer, state: object) -> Any:
    """The state as load() gives it back."""
    save(ckpt, 1, state)
    return ckpt.load(1)


def attempt_of(run: Path, step: int) -> Path:
    """The directory of the one attempt at a step."""
    (found,) = run.glob(f"step-{step:012d}-*")
    return found


def data_file(run: Path, step: int) -> Path:
    (found,) = attempt_of(run, step).glob("*.safetensors")
    return found


def data_start(path: Path) -> int:
    """The offset of a safetensors file's data."""
    with path.open("rb") as file:
        return 8 + int.from_bytes(file.read(8), "little")


def header(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return dict(json.loads(file.read(int.from_bytes(file.read(8), "little"))))


def flip(path: Path, offset: int) -> None:
    """Flips one bit of a file."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(data)


def _text(value: Any) -> str:
    """repr, but the same for equal sets whatever order they are in."""
    if isinstance(value, (set, frozenset)):
        return f"{type(value).__name__}({sorted(map(_text, value))})"
    if isinstance(value, tuple):
        return f"tuple({[_text(item) for item in value]})"
    return f"{type(value).__name__}({value!r})"


def same(one: Any, other: Any) -> bool:
    """Equal in value, type, order of keys, sign of zero and NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        if math.isnan(one):
            return math.isnan(other)
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    if isinstance(one, complex):
        return same(one.real, other.real) and same(one.imag, other.imag)
    if isinstance(one, defaultdict) and one.default_factory is not other.default_factory:
        return False
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    if isinstance(one, deque) and one.maxlen != other.maxlen:
        return False
    if isinstance(one, (list, tuple, deque)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, (set, frozenset)):
        return sorted(map(_text, one)) == sorted(map(_text, other))
    if isinstance(one, (np.ndarray, np.generic)):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    return bool(one == other)


def bits(tensor: torch.Tensor) -> list[int]:
    """The bytes of a tensor in row-major order."""
    if tensor.numel() == 0:
        return []
    plain = copyable(tensor.detach().resolve_conj().resolve_neg())
    dense = torch.empty(plain.shape, dtype=plain.dtype).copy_(plain)
    return list(dense.reshape(-1).view(torch.uint8).tolist())


def assert_same(one: torch.Tensor, other: torch.Tensor) -> None:
    assert (one.dtype, one.shape) == (other.dtype, other.shape)
    assert bits(one) == bits(other)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.bn = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 2)
        self.register_buffer("scratch", torch.randn(3), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.bn(self.conv(x)).mean((2, 3)))
        return out


def state_bits(module: nn.Module) -> dict[str, list[int]]:
    return {name: bits(tensor) for name, tensor in module.state_dict().items()}


def momentum_over(*modules: nn.Module) -> torch.optim.Optimizer:
    parameters = [parameter for module in modules for parameter in module.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    for number, parameter in enumerate(parameters):
        optimizer.state[parameter]["momentum_buffer"] = torch.full_like(parameter, number + 1.0)
    return optimizer
