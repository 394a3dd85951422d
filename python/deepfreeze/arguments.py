"""What a caller gives beside the state: steps, metrics, tags."""

from __future__ import annotations

import operator
from collections.abc import Mapping


def checked_step(step: int) -> int:
    """A step as a number of 64 bits; TypeError or ValueError where it is none."""
    if isinstance(step, bool):
        raise TypeError("step: a bool")
    try:
        value = operator.index(step)
    except TypeError as cause:
        raise TypeError(f"step: a {type(step).__qualname__} is no whole number") from cause
    if value < 0:
        raise ValueError(f"step: {value} is less than 0")
    if value >= 1 << 64:
        raise ValueError(f"step: {value} is beyond 64 bits")
    return value


def floats(metrics: Mapping[str, float]) -> dict[str, float]:
    """Metrics as names and numbers; TypeError names the one that is none."""
    return {str(name): _float(name, value) for name, value in metrics.items()}


def _float(name: str, value: float) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as cause:
        raise TypeError(f"metrics: {name!r}: {value!r} is no number") from cause


def strings(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags as pairs of strings; TypeError names the one that is none."""
    for name, value in tags.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"tags: {name!r}: {value!r} is no pair of strings")
    return dict(tags)
