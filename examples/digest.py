"""One SHA-256 over a whole training state: the proof that two runs ended the same, bit for bit."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from typing import Any

import numpy
import torch


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, bytes]]:
    """Every leaf with its path, type and exact bytes; dictionaries in the order of their keys."""
    if isinstance(value, torch.Tensor):
        tensor = value.detach().cpu().contiguous()
        yield f"{path}:{tensor.dtype}:{tuple(tensor.shape)}", tensor_bytes(tensor)
    elif isinstance(value, numpy.ndarray):
        yield f"{path}:{value.dtype}:{value.shape}", value.tobytes()
    elif isinstance(value, dict):
        yield f"{path}:dict:{len(value)}", b""
        for key in sorted(value, key=repr):
            yield from leaves(value[key], f"{path}.{key!r}")
    elif isinstance(value, (list, tuple)):
        yield f"{path}:{type(value).__name__}:{len(value)}", b""
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}[{index}]")
    elif isinstance(value, float):
        yield f"{path}:float", value.hex().encode()
    elif value is None or isinstance(value, (bool, int, str, bytes, numpy.generic)):
        yield f"{path}:{type(value).__name__}", repr(value).encode()
    else:
        raise TypeError(f"digest of {path}: no exact bytes for a {type(value).__name__}")


def tensor_bytes(tensor: torch.Tensor) -> bytes:
    """The elements' bytes; NumPy knows no bfloat16, so all go through uint8."""
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


def generators() -> dict[str, Any]:
    """The states of the three global random generators of a CPU run."""
    return {
        "python": random.getstate(),
        "numpy": numpy.random.get_state(),
        "torch": torch.get_rng_state(),
    }


def seed_generators(seed: int) -> None:
    """All three, as Python's own would otherwise start differently in every process."""
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)


def sha256(*values: Any) -> str:
    """The hash of all leaves of `values`, as hex digits."""
    digest = hashlib.sha256()
    for name, data in leaves(list(values)):
        for part in (name.encode(), data):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
    return digest.hexdigest()


def training_digest(state: dict[str, Any]) -> str:
    """The hash of all state that a run continues from: objects and random generators.

    Buffers are taken from the modules too, because state_dict() leaves out non-persistent ones.
    """
    objects = {name: item.state_dict() for name, item in state.items() if name != "rng"}
    buffers = {
        name: dict(item.named_buffers())
        for name, item in state.items()
        if isinstance(item, torch.nn.Module)
    }
    return sha256(objects, buffers, generators())
