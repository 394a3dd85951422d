"""The state that every saver saves here: three versions of a small one. Imports no framework."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy

from lab.networks.layout import Layout, TensorSpec
from lab.writers.values import Array, Values

OLDER, NEWER = 1, 2  # the steps that are saved
BLANK = 3  # the version that a process holds before it loads: never saved
LATER = 3  # the step at which the newer version is saved again

LAYERS = 12
WIDTH = 192


def layout(layers: int = LAYERS) -> Layout:
    """Of a small network with Adam: large enough that a save has a middle."""
    specs = tuple(spec for index in range(layers) for spec in layer(f"layer{index}"))
    return Layout("torture", f"A network of {layers} layers with Adam", specs)


def layer(name: str) -> Iterator[TensorSpec]:
    for part, shape in (("weight", (WIDTH, WIDTH)), ("bias", (WIDTH,))):
        for suffix in ("", ".exp_avg", ".exp_avg_sq"):
            yield TensorSpec(f"{name}.{part}{suffix}", "float32", shape)
    yield TensorSpec(f"{name}.step", "float32", ())
    yield TensorSpec(f"{name}.batches", "int64", ())


# Says which version was loaded, by bytes alone. Knows no saver.


Holds = Literal["newer", "older", "wrong"]
Prints = Mapping[str, str]


def fingerprint(array: Array) -> str:
    """SHA-256 of dtype, shape and bytes."""
    found = hashlib.sha256(f"{array.dtype.str} {array.shape}".encode())
    found.update(numpy.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def fingerprints(arrays: Mapping[str, Array]) -> dict[str, str]:
    return {name: fingerprint(array) for name, array in arrays.items()}


class Judge:
    """Computes by itself the state that should have been loaded."""

    def __init__(self, layout: Layout, values: Values) -> None:
        self._layout = layout
        self._values = values
        self._older = self._expected(OLDER)
        self._newer = self._expected(NEWER)

    def _expected(self, version: int) -> dict[str, str]:
        arrays = {spec.name: numpy.empty(spec.shape, spec.dtype) for spec in self._layout.tensors}
        for index, array in enumerate(arrays.values()):
            self._values.fill(array, index, version)
        return fingerprints(arrays)

    def holds(self, found: Prints) -> Holds:
        if found == self._newer:
            return "newer"
        return "older" if found == self._older else "wrong"

    def tally(self, found: Prints) -> dict[str, int]:
        """How many tensors are of which version: a mixture has some of both."""
        newer = sum(found.get(name) == one for name, one in self._newer.items())
        older = sum(found.get(name) == one for name, one in self._older.items())
        return {"newer": newer, "older": older, "neither": len(self._newer) - newer - older}


# The verdict on a load after a fault. Only the loaded state decides, never its saver.


End = Literal["loaded", "failed", "died", "hung"]


@dataclass(frozen=True)
class Loaded:
    """How one process that loaded ended."""

    end: End
    holds: Holds | None = None  # None where nothing was loaded
    error: str = ""
    passed_over: tuple[int, ...] = ()  # steps that the saver says it did not take, being damaged
    tally: dict[str, int] = field(default_factory=dict)  # of the wrong values


DETECTED, FELL_BACK, SILENT, HARMLESS = "detected", "fell back", "silent", "harmless"
KEPT, LOST, WRONG = "kept", "lost", "wrong"
OF_NEWER, OF_OLDER, BY_HAND = "newer", "older", "older by hand"
DIED, HUNG = "died", "hung"
NOTHING = "nothing"  # is left that can be loaded

FOUND = (DETECTED, FELL_BACK)
RIGHT = (OF_NEWER, OF_OLDER, BY_HAND)


def of_damage(loaded: Loaded) -> str:
    """An older state counts as found only where the newer one is named as damaged."""
    if loaded.end == "failed":
        return DETECTED
    if loaded.end != "loaded":
        return DIED if loaded.end == "died" else HUNG
    if loaded.holds == "newer":
        return HARMLESS
    named = loaded.holds == "older" and NEWER in loaded.passed_over
    return FELL_BACK if named else SILENT


def of_acknowledged(first: Loaded, older: Loaded | None) -> str:
    """Of a save that is to be there: only its own state will do."""
    if "wrong" in (first.holds, older and older.holds):
        return WRONG
    return KEPT if first.holds == "newer" else LOST


def of_interrupted(first: Loaded, older: Loaded | None) -> str:
    """Of a save that was not done: the state before it will do as well, if need be by its name."""
    if "wrong" in (first.holds, older and older.holds):
        return WRONG
    if first.holds is not None:
        return OF_NEWER if first.holds == "newer" else OF_OLDER
    return BY_HAND if older is not None and older.holds == "older" else LOST


def left(first: Loaded, older: Loaded | None) -> str:
    """The checkpoints that can be loaded at all."""
    if first.holds is not None:
        return first.holds
    return (older.holds if older is not None else None) or NOTHING
