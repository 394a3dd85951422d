"""Numbers about one tensor, and about its change since another step, from sums over its pieces.

All but the counts are about finite elements; a change is about elements that are finite at both
steps. The elements are the stored ones, so a complex number counts as two.
"""

from __future__ import annotations

from math import isfinite, nan, sqrt

import numpy as np
from numpy.typing import NDArray

from deepfreeze import _core

QUANTITIES = (
    "min", "max", "mean", "deviation", "norm", "zeros", "non_finite", "delta", "cosine", "changed",
)  # fmt: skip
BINS, BIN_FIRST = _core.EXPONENT_BINS, _core.EXPONENT_FIRST
_SAMPLES = 1 << 16  # elements of a tensor that the histogram looks at, about

Bytes = NDArray[np.uint8]


class TensorNumbers:
    """The numbers of one tensor; its pieces may come in any order."""

    def __init__(self, dtype: str, elements: int) -> None:
        self._sums = _core.TensorSums(dtype, max(1, elements // _SAMPLES))

    def add(self, data: Bytes, earlier: Bytes | None = None) -> None:
        """A piece of whole elements, and the same piece of the earlier step if there is one."""
        before = 0 if earlier is None else earlier.ctypes.data
        self._sums.add(data.ctypes.data, before, data.size)

    def result(self) -> tuple[float, ...]:
        """One number for each of QUANTITIES; NaN for those that are not known."""
        sums = self._sums
        counts = float(sums.zeros), float(sums.non_finite)
        if sums.finite == 0:
            return nan, nan, nan, nan, nan, *counts, *self._change()
        mean = sums.sum / sums.finite
        variance = sums.squares / sums.finite - mean * mean
        deviation = sqrt(max(0.0, variance)) if isfinite(variance) else nan
        own = sums.min, sums.max, _known(mean), deviation, _known(sqrt(sums.squares))
        return (*own, *counts, *self._change())

    def _change(self) -> tuple[float, float, float]:
        sums = self._sums
        if not sums.compared:
            return nan, nan, nan
        scale = sqrt(sums.own_squares) * sqrt(sums.earlier_squares)
        # Rounding may carry it beyond its ends. NaN stays NaN, which min() and max() may lose.
        cosine = float(np.clip(sums.dot / scale, -1, 1)) if scale > 0 else nan
        return _known(sqrt(sums.delta_squares)), cosine, float(sums.changed)

    def histogram(self) -> Bytes:
        """The share of the elements in each bin but zeros, as 255 times its square root."""
        counts = np.array(self._sums.exponents, np.float64)
        total = counts.sum()
        shares: Bytes = np.ceil(255 * np.sqrt(counts / total if total else counts)).astype(np.uint8)
        return shares


def _known(number: float) -> float:
    """NaN instead of the infinity that a sum of finite elements becomes if they are too large."""
    return number if isfinite(number) else nan
