"""Says which version was loaded, by bytes alone. Knows no saver."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Literal

import numpy

from lab.faults.state import NEWER, OLDER
from lab.networks.layout import Layout
from lab.writers.values import Array, Values

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
    """Computes by itself what should have been loaded."""

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
