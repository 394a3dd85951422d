"""Numbers about one tensor, and about its change since another step, from pieces of it. Pure.

All but the counts are about finite elements; a change is about elements that are finite at both
steps. The elements are the stored ones, so a complex number counts as two.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

QUANTITIES = (
    "min", "max", "mean", "variance", "norm", "zeros", "non_finite", "delta", "cosine", "changed",
)  # fmt: skip
BINS = 64
BIN_FIRST = -40  # the exponent of the first bin, which also has all that are smaller
_SAMPLES = 1 << 16  # elements of a tensor that the histogram looks at, about
_MANTISSA_BITS, _EXPONENT_BIAS = 23, 127  # of float32

Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]


def _small_floats(exponent_bits: int, mantissa_bits: int, *, has_infinity: bool) -> Any:
    """The 256 values of an 8-bit type, by their bits."""
    bits = np.arange(256)
    mantissa = bits & ((1 << mantissa_bits) - 1)
    exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1)
    bias = (1 << (exponent_bits - 1)) - 1
    part = mantissa / (1 << mantissa_bits)
    values = np.where(exponent > 0, 1 + part, part) * 2.0 ** (np.maximum(exponent, 1) - bias)
    if has_infinity:
        top = exponent == (1 << exponent_bits) - 1
        values = np.where(top, np.where(mantissa == 0, np.inf, np.nan), values)
    else:  # only the pattern of all ones is no number
        values = np.where((bits & 0x7F) == 0x7F, np.nan, values)
    return np.where(bits & 0x80, -values, values)


_E4M3 = _small_floats(4, 3, has_infinity=False)
_E5M2 = _small_floats(5, 2, has_infinity=True)
_PLAIN = {
    "BOOL": "u1", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4",
    "U64": "<u8", "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8",
}  # fmt: skip


def is_floating(dtype: str) -> bool:
    """Whether the stored type knows NaN."""
    return dtype.startswith(("F", "BF"))


def decoded(dtype: str, data: Bytes) -> Floats:
    """The elements as doubles. Integers beyond 2^53 are rounded."""
    if dtype == "BF16":
        with np.errstate(invalid="ignore"):  # signalling NaN
            return (data.view("<u2").astype("<u4") << 16).view("<f4").astype(np.float64)
    if dtype == "F8_E4M3":
        return np.asarray(_E4M3[data])
    if dtype == "F8_E5M2":
        return np.asarray(_E5M2[data])
    return data.view(_PLAIN[dtype]).astype(np.float64)


class TensorNumbers:
    """Sums over the pieces of one tensor, in any order."""

    def __init__(self, dtype: str, item_bytes: int, elements: int) -> None:
        self._dtype, self._item_bytes, self._elements = dtype, item_bytes, elements
        self._stride = max(1, elements // _SAMPLES)
        self._min, self._max = np.inf, -np.inf
        self._sum = self._squares = 0.0
        self._finite = self._zeros = self._non_finite = 0
        self._compared = False
        self._delta = self._dot = self._earlier_squares = self._own_squares = 0.0
        self._changed = 0
        self._bins = np.zeros(BINS, np.int64)

    def add(self, data: Bytes, earlier: Bytes | None = None) -> None:
        """A piece of whole elements, and the same piece of the earlier step if there is one."""
        values = decoded(self._dtype, data)
        finite = np.isfinite(values) if is_floating(self._dtype) else None
        all_finite = finite is None or bool(finite.all())
        self._add_own(values if finite is None or all_finite else values[finite])
        self._non_finite += 0 if finite is None or all_finite else int((~finite).sum())
        if earlier is not None:
            self._compare(data, values, earlier, None if all_finite else finite)

    def _add_own(self, values: Floats) -> None:
        if not values.size:
            return
        self._finite += values.size
        self._min = min(self._min, float(values.min()))
        self._max = max(self._max, float(values.max()))
        self._sum += float(values.sum())
        self._squares += float(values @ values)
        self._zeros += values.size - int(np.count_nonzero(values))
        if is_floating(self._dtype):
            self._count_exponents(values[:: self._stride])

    def _count_exponents(self, values: Floats) -> None:
        with np.errstate(over="ignore", under="ignore"):  # beyond the bins anyway
            bits = values[values != 0].astype("<f4").view("<u4")
        exponents = ((bits >> _MANTISSA_BITS) & 0xFF).astype(np.int64) - _EXPONENT_BIAS
        places = np.clip(exponents - BIN_FIRST, 0, BINS - 1)
        self._bins += np.bincount(places, minlength=BINS)

    def _compare(self, data: Bytes, values: Floats, earlier: Bytes, finite: Any) -> None:
        self._compared = True
        words = f"<u{self._item_bytes}"  # bits, so NaN equals NaN
        self._changed += int(np.count_nonzero(data.view(words) != earlier.view(words)))
        before = decoded(self._dtype, earlier)
        if is_floating(self._dtype):
            both = np.isfinite(before) if finite is None else finite & np.isfinite(before)
            if not both.all():
                values, before = values[both], before[both]
        with np.errstate(over="ignore"):
            step = values - before
            self._delta += float(step @ step)
        self._dot += float(values @ before)
        self._own_squares += float(values @ values)
        self._earlier_squares += float(before @ before)

    def result(self) -> tuple[float, ...]:
        """One number for each of QUANTITIES; NaN for those that are not known."""
        nan, count = float("nan"), self._finite
        mean = self._sum / count if count else nan
        variance = max(0.0, self._squares / count - mean * mean) if count else nan
        own = (
            self._min if count else nan,
            self._max if count else nan,
            mean,
            variance,
            float(np.sqrt(self._squares)) if count else nan,
            float(self._zeros),
            float(self._non_finite),
        )
        if not self._compared:
            return (*own, nan, nan, nan)
        scale = float(np.sqrt(self._own_squares) * np.sqrt(self._earlier_squares))
        cosine = self._dot / scale if scale > 0 else nan
        return (*own, float(np.sqrt(self._delta)), cosine, float(self._changed))

    def histogram(self) -> Bytes:
        """The share of the elements in each bin but zeros, as 255 times its square root."""
        total = int(self._bins.sum())
        shares = np.sqrt(self._bins / total) if total else np.zeros(BINS)
        return np.ceil(255 * shares).astype(np.uint8)
