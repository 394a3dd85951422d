"""Which tensors a state has. Imports no framework: every saver's process reads it from a file."""

import json
import math
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy

PARTIAL_BYTES_MAX = 16_000_000  # a layer, not the whole


@dataclass(frozen=True)
class TensorSpec:
    name: str
    dtype: str  # as NumPy calls it
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * numpy.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Layout:
    """The tensors of one workload, in order."""

    name: str
    title: str
    tensors: tuple[TensorSpec, ...]

    @property
    def nbytes(self) -> int:
        return sum(spec.nbytes for spec in self.tensors)

    @cached_property
    def positions(self) -> dict[str, int]:
        return {spec.name: index for index, spec in enumerate(self.tensors)}

    @property
    def partial(self) -> TensorSpec:
        """What a partial load asks for: the largest tensor that is no larger than a layer."""
        layers = [spec for spec in self.tensors if spec.nbytes <= PARTIAL_BYTES_MAX]
        if layers:
            return max(layers, key=lambda spec: spec.nbytes)
        return min(self.tensors, key=lambda spec: spec.nbytes)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))


def read(path: Path) -> Layout:
    found = json.loads(path.read_text())
    tensors = (
        TensorSpec(one["name"], one["dtype"], tuple(one["shape"])) for one in found["tensors"]
    )
    return Layout(found["name"], found["title"], tuple(tensors))


def equal_tensors(name: str, title: str, count: int, nbytes: int) -> Layout:
    """`count` tensors of the same size, `nbytes` together as nearly as that goes."""
    length = max(1, nbytes // 4 // count)
    specs = (TensorSpec(f"layer{index}.weight", "float32", (length,)) for index in range(count))
    return Layout(name, title, tuple(specs))


def small_tensors(count: int) -> Layout:
    """From 1 to 4 KiB each, in turn."""
    specs = (
        TensorSpec(f"layer{index}.weight", "float32", (256 * (1 + index % 4),))
        for index in range(count)
    )
    return Layout("small10k", f"{count:,} tensors of 1 to 4 KiB", tuple(specs))


def tiny() -> Layout:
    """For the smoke size: a few shapes, a scalar, a counter."""
    shapes = {"embedding": (300, 64), "hidden.weight": (256, 300), "hidden.bias": (256,)}
    specs = [TensorSpec(name, "float32", shape) for name, shape in shapes.items()]
    specs += [TensorSpec("step", "float32", ()), TensorSpec("norm.batches", "int64", ())]
    return Layout("tiny", "smoke size: five tensors", tuple(specs))
