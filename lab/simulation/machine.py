"""Machines and trainings as the simulation knows them, and where each figure comes from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

THETA_LIKE = Path(__file__).parent / "machines" / "theta-like.json"

Tensors = tuple[tuple[str, str, tuple[int, ...]], ...]  # name, safetensors dtype, shape

_PARTS = ("local", "parallel", "network")


class MachineError(ValueError):
    """A description that can't be read; says file, field and cause."""


@dataclass(frozen=True)
class Parameter:
    """Bandwidths in bytes a second."""

    value: float
    source: str  # a public document, a measurement, or "assumed"


@dataclass(frozen=True)
class Machine:
    name: str
    parameters: Mapping[str, Parameter]  # by the scenario's field: "local.write_bandwidth"

    def with_(self, **changes: Parameter) -> Machine:
        """With other parameters; `local__write_bandwidth` stands for the dotted name."""
        named = {name.replace("__", "."): parameter for name, parameter in changes.items()}
        return replace(self, parameters={**self.parameters, **named})

    def fields(self) -> dict[str, Any]:
        """As in a scenario: nested, without the sources."""
        fields: dict[str, Any] = {part: {} for part in _PARTS}
        for name, parameter in self.parameters.items():
            part, _, field = name.rpartition(".")
            place = fields[part] if part else fields
            place[field] = parameter.value
        return fields


@dataclass(frozen=True)
class Workload:
    """A data-parallel training: every rank has all tensors."""

    name: str
    tensors: Tensors
    step_seconds: float
    window_seconds: float  # of a step: forward and backward, while parameters don't change
    jitter: float = 0.0  # deviation of the logarithm of a rank's window
    seed: int = 0
    gradient_bytes: int = 0  # that each step reduces over all ranks
    sharded: bool = False  # a restore brings each node only the part that it has saved

    def fields(self) -> dict[str, Any]:
        return {
            "tensors": [[name, dtype, list(shape)] for name, dtype, shape in self.tensors],
            "step_seconds": self.step_seconds,
            "window_seconds": self.window_seconds,
            "jitter": self.jitter,
            "seed": self.seed,
            "gradient_bytes": self.gradient_bytes,
            "sharded": self.sharded,
        }


def read_machine(path: Path = THETA_LIKE) -> Machine:
    try:
        described: dict[str, Any] = json.loads(path.read_text())
        name = str(described["name"])
        entries = dict(described["parameters"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise MachineError(f"{path}: {type(error).__name__}: {error}") from None
    return Machine(name, {field: _parameter(path, field, entries[field]) for field in entries})


def _parameter(path: Path, field: str, entry: Any) -> Parameter:
    value = entry.get("value") if isinstance(entry, dict) else None
    source = entry.get("source") if isinstance(entry, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MachineError(f"{path}: {field}: value is not a number")
    if not isinstance(source, str) or not source.strip():
        raise MachineError(f"{path}: {field}: no source; write where it is from, or `assumed`")
    return Parameter(value, source)


def one_tensor(state_bytes: int) -> Tensors:
    """A state of which only the size is known."""
    return (("state", "U8", (state_bytes,)),)


def nt3(step_seconds: float, *, jitter: float = 0.02, seed: int = 0) -> Workload:
    """CANDLE NT3 with SGD and momentum, 1.24 GB: nearly all of it is one matrix and its momentum.

    One step in twenty is taken to be the update: an assumption.
    """
    layers: tuple[tuple[str, tuple[int, ...]], ...] = (
        ("conv1.weight", (128, 1, 20)), ("conv1.bias", (128,)),
        ("conv2.weight", (128, 128, 10)), ("conv2.bias", (128,)),
        ("dense1.weight", (200, 773_760)), ("dense1.bias", (200,)),
        ("dense2.weight", (20, 200)), ("dense2.bias", (20,)),
        ("dense3.weight", (2, 20)), ("dense3.bias", (2,)),
    )  # fmt: skip
    tensors = tuple(
        (f"{part}.{name}", "F32", shape) for part in ("model", "momentum") for name, shape in layers
    )
    return Workload(
        "nt3", tensors, step_seconds, 0.95 * step_seconds, jitter, seed, 4 * 154_922_918
    )
