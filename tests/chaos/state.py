"""A training whose every byte follows from (seed, life, step): anybody can recompute its state."""

from __future__ import annotations

import functools
import hashlib
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from tests.e2e.stored_file import read_stored_file

Digests = dict[str, str]  # of tensors, by the keys under which they are stored

# Elements of the parameters. Tensors of 64 KiB and more are captured behind training, and a wide
# state has more than one slab of 4 MiB.
SIZES = {"small": (60_000, 20_000, 1_000, 7), "wide": (560_000, 20_000, 1_000, 7)}
EXTRA_ELEMENTS = 1_250
# A tensor that changes in each so many steps only, large enough for a file that checkpoints share.
FROZEN = "frozen"
FROZEN_ELEMENTS = {"small": 24_000, "wide": 1_200_000}
FROZEN_STEPS = 24


@dataclass(frozen=True, order=True)
class Point:
    """One save. A later life's are newer than all of an earlier one."""

    life: int  # of the trainer; each of its processes is one
    step: int


@dataclass(frozen=True)
class World:
    """The parameters that, together with the point, decide every byte."""

    seed: int
    size: str = "small"

    def elements(self) -> dict[str, int]:
        """The number of elements of each tensor."""
        counts = {"extra": EXTRA_ELEMENTS, FROZEN: FROZEN_ELEMENTS[self.size]}
        for index, count in enumerate(SIZES[self.size]):
            counts[f"model.{index}"] = counts[f"optim.state.{index}.moment"] = count
        return counts

    def state_bytes(self) -> int:
        return 4 * sum(self.elements().values())

    def bytes_at(self, point: Point, key: str) -> bytes:
        of_point = [point.life, point.step]
        if key == FROZEN:  # of no life: a restore does not change it
            of_point = [point.step // FROZEN_STEPS]
        source = numpy.random.default_rng([self.seed, *of_point, zlib.crc32(key.encode())])
        return source.bytes(4 * self.elements()[key])


@functools.lru_cache(maxsize=64)
def digests_at(world: World, point: Point) -> Digests:
    """The digests of the true state."""
    return {key: digest(world.bytes_at(point, key)) for key in world.elements()}


def digest(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def digests_of_file(path: Path) -> Digests:
    """The digests of the tensors in a file, by the public rules of safetensors alone."""
    stored = read_stored_file(path)
    data = memoryview(path.read_bytes())[stored.header_bytes :]
    return {key: digest(data[first:last]) for key, (first, last) in stored.extents.items()}


def digests_of_tree(tree: Any, path: str = "") -> Digests:
    """The digests of all tensors or arrays in a result of load()."""
    if isinstance(tree, dict):
        found: Digests = {}
        for name, item in tree.items():
            found |= digests_of_tree(item, f"{path}.{name}" if path else str(name))
        return found
    if isinstance(tree, (Tensor, numpy.ndarray)):
        return {path: digest(numpy.asarray(tree).tobytes())}
    return {}


class Replay(torch.optim.Optimizer):
    """An optimizer whose step writes the state's next values."""

    def __init__(self, parameters: Iterable[nn.Parameter], write: Callable[[], None]) -> None:
        super().__init__(parameters, {})
        self._write = write

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        """Writes after the fences of attached checkpointers."""
        with torch.no_grad():
            self._write()


class Live:
    """The state in the trainer's memory; at first that of a point that nobody saves."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._point = Point(0, 0)
        self._model = nn.ParameterList([torch.zeros(count) for count in SIZES[world.size]])
        self._extra = torch.zeros(EXTRA_ELEMENTS)
        self._frozen = torch.zeros(FROZEN_ELEMENTS[world.size])
        self.optim = Replay(self._model.parameters(), self._write)
        for parameter in self._model:
            self.optim.state[parameter]["moment"] = torch.zeros_like(parameter)
        self._at = {"life": 0, "step": 0}
        self.state = {
            "model": self._model,
            "optim": self.optim,
            "extra": self._extra,
            FROZEN: self._frozen,
            "at": self._at,
        }
        self.advance(self._point)

    def advance(self, point: Point) -> None:
        self._point = point
        self.optim.step()
        self._fill(self._extra, "extra")  # not attached: captured before save() returned
        self._fill(self._frozen, FROZEN)
        self._at.update(life=point.life, step=point.step)

    def _write(self) -> None:
        for key, tensor in self._guarded().items():
            self._fill(tensor, key)

    def _fill(self, tensor: Tensor, key: str) -> None:
        data = bytearray(self._world.bytes_at(self._point, key))
        tensor.copy_(torch.frombuffer(data, dtype=torch.float32))

    def _guarded(self) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        for index, parameter in enumerate(self._model):
            tensors[f"model.{index}"] = parameter.detach()
            tensors[f"optim.state.{index}.moment"] = self.optim.state[parameter]["moment"]
        return tensors

    def spoil(self) -> None:
        """One wrong byte, for the negative control."""
        self._extra.view(torch.uint8)[17] ^= 1

    def point(self) -> Point:
        """As the plain values say."""
        return Point(self._at["life"], self._at["step"])

    def digests(self) -> Digests:
        tensors = {**self._guarded(), "extra": self._extra, FROZEN: self._frozen}
        return {key: digest(tensor.numpy().tobytes()) for key, tensor in tensors.items()}
