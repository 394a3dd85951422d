"""Flips bits of float32 numbers: drawn from a seed, logged, and done again from the log.

Imports no framework: what the places are depends on names and sizes alone.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy
from numpy.typing import NDArray

Floats = NDArray[numpy.float32]

CLASSES: dict[str, range] = {
    "mantissa 0-22": range(23),
    "exponent 23-27": range(23, 28),
    "exponent 28-29": range(28, 30),
    "exponent 30": range(30, 31),
    "sign 31": range(31, 32),
}


@dataclass(frozen=True)
class Spot:
    """One bit of one number; `index` counts over the tensor in C order."""

    tensor: str
    index: int
    bit: int


class ReplayError(Exception):
    """The log is of another state."""


def draw(random: Random, sizes: Mapping[str, int], bits: range, count: int) -> list[Spot]:
    """Different ones; every number of these tensors is as likely as every other."""
    numbers = sum(sizes.values())
    found: list[Spot] = []
    for each in random.sample(range(numbers * len(bits)), count):
        number, bit = divmod(each, len(bits))
        for tensor, size in sizes.items():
            if number < size:
                found.append(Spot(tensor, number, bits[bit]))
                break
            number -= size
    return found


def flip(arrays: Mapping[str, Floats], spots: Sequence[Spot]) -> list[dict[str, Any]]:
    """In place; the log of it. Values as text, because JSON has no infinity."""
    log = []
    for spot in spots:
        flat = arrays[spot.tensor].reshape(-1)
        assert numpy.shares_memory(flat, arrays[spot.tensor])
        old = repr(float(flat[spot.index]))
        flat.view(numpy.uint32)[spot.index] ^= numpy.uint32(1 << spot.bit)
        new = repr(float(flat[spot.index]))
        log.append({"tensor": spot.tensor, "index": spot.index, "bit": spot.bit,
                    "old": old, "new": new})  # fmt: skip
    return log


def replay(arrays: Mapping[str, Floats], log: Sequence[Mapping[str, Any]]) -> None:
    """ReplayError, with nothing changed, where a number is not the one that was flipped."""
    spots = [Spot(one["tensor"], one["index"], one["bit"]) for one in log]
    tried = flip({name: array.copy() for name, array in arrays.items()}, spots)
    for one, held in zip(log, tried, strict=True):
        if held["old"] != one["old"]:
            where = f"{one['tensor']}[{one['index']}]"
            raise ReplayError(f"{where} is {held['old']}, not {one['old']}")
    flip(arrays, spots)


def digest(log: Sequence[Mapping[str, Any]]) -> str:
    """Of a log that is too long to be kept: whoever draws it again can compare."""
    return hashlib.sha256(json.dumps(list(log), sort_keys=True).encode()).hexdigest()
