"""A progress bar on standard error, as the native verbs draw it (src/cli/progress.h)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

_QUIET_SECONDS = 1.0
_REDRAW_SECONDS = 0.1
_BAR_WIDTH = 30
_WIPE = "\r\033[K"


def human_bytes(count: int) -> str:
    """ "306.9 MB", in powers of 1000."""
    if count < 1000:
        return f"{count} B"
    value = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if value < 999.95:  # 999.95 would be written as 1000.0
            return f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} EB"


class Progress:
    """Only on a terminal, and only for what lasts over a second. Wiped at the end."""

    def __init__(
        self,
        label: str,
        total: int,
        stream: TextIO | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._label = label
        self._total = max(total, 1)
        self._stream = sys.stderr if stream is None else stream
        self._now = now
        self._start = self._drawn = now()
        self._done = 0
        self._visible = False
        self._wanted = self._stream.isatty()

    def add(self, count: int) -> None:
        """So much more is done."""
        self.update(self._done + count)

    def update(self, done: int) -> None:
        """So much is done in all."""
        self._done = done
        if not self._wanted:
            return
        now = self._now()
        if now - self._start < _QUIET_SECONDS:
            return
        if self._visible and now - self._drawn < _REDRAW_SECONDS:
            return
        self._visible, self._drawn = True, now
        part = min(1.0, done / self._total)
        filled = int(part * _BAR_WIDTH)
        rate = human_bytes(int(done / (now - self._start)))
        bar = "#" * filled + "-" * (_BAR_WIDTH - filled)
        amount = f"{human_bytes(done)} of {human_bytes(self._total)}"
        self._stream.write(f"{_WIPE}{self._label} [{bar}] {part * 100:3.0f}%  {amount}  {rate}/s")
        self._stream.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._visible:
            self._stream.write(_WIPE)
            self._stream.flush()
