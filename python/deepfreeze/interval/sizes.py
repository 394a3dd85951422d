"""Numbers of bytes, as a caller writes them: 5e8, "500MB", "1.5 GiB"."""

from __future__ import annotations

import re

# Decimal, as disks and networks are sold; binary ones have an "i".
_DECIMAL = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS = _DECIMAL | {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", re.IGNORECASE)
_PER_SECOND = re.compile(r"/\s*s\s*$")


def bytes_max_of(size: str | float | None) -> int | None:
    """The bound in bytes; ValueError if it is not understood."""
    if size is None:
        return None
    found = _number(size)
    if found is None:
        raise ValueError(f'bytes_max={size!r}: no number of bytes, such as 5e11 or "500GB"')
    if not 1 <= found < 2**63:
        raise ValueError(f"bytes_max={size!r}: at least 1 byte; None is no bound")
    return int(found)


def bytes_per_second_of(rate: str | float | None) -> int:
    """The rate, 0 for none; ValueError if it is not understood."""
    if rate is None:
        return 0
    found = _number(_PER_SECOND.sub("", rate) if isinstance(rate, str) else rate)
    if found is None:
        raise ValueError(f'rate="{rate}": not bytes per second, such as 5e8 or "500MB/s"')
    if not 1 <= found < 2**63:
        raise ValueError(f"rate={rate}: at least 1 byte per second; None is no limit")
    return int(found)


def _number(size: str | float) -> float | None:
    if not isinstance(size, str):
        return size
    found = _SIZE.fullmatch(size)
    return float(found[1]) * _UNITS[(found[2] or "").lower()] if found else None
