"""Progress of a long read, check or import: shown on a terminal or in a notebook after a second."""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from threading import Event, Thread
from types import TracebackType
from typing import Any, Self, TextIO

from deepfreeze import _core

_QUIET_SECONDS = 1.0
_REDRAW_SECONDS = 0.1
_JOIN_SECONDS = 1.0
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
    """A line as the native verbs draw it (src/cli/progress.h), wiped at the end.

    Nothing is drawn if the work ends within a second, or if nobody looks.
    """

    def __init__(
        self,
        label: str,
        total: int,
        stream: TextIO | None = None,
        now: Callable[[], float] = time.monotonic,
        start: float | None = None,
    ) -> None:
        self._label = label
        self._total = max(total, 1)
        self._stream = sys.stderr if stream is None else stream
        self._now = now
        self._start = self._drawn = now() if start is None else start
        self._done = 0
        self._visible = False
        self._wanted = is_watched(self._stream)

    def add(self, count: int) -> None:
        """Adds `count` to the amount that is done."""
        self.update(self._done + count)

    def update(self, done: int) -> None:
        """Sets the amount that is done."""
        self._done = done
        if not self._wanted:
            return
        now = self._now()
        if now - self._start < _QUIET_SECONDS:
            return
        if self._visible and now - self._drawn < _REDRAW_SECONDS:
            return
        self._visible, self._drawn = True, now
        self._draw(done, now - self._start)

    def _draw(self, done: int, seconds: float) -> None:
        part = min(1.0, done / self._total)
        filled = int(part * _BAR_WIDTH)
        rate = human_bytes(int(done / seconds))
        bar = "#" * filled + "-" * (_BAR_WIDTH - filled)
        amount = f"{human_bytes(done)} of {human_bytes(self._total)}"
        self._stream.write(f"{_WIPE}{self._label} [{bar}] {part * 100:3.0f}%  {amount}  {rate}/s")
        self._stream.flush()

    def _wipe(self) -> None:
        self._stream.write(_WIPE)
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
            self._wipe()


class TqdmProgress(Progress):
    """Draws by tqdm, since a line of ours would spoil its bars; a widget in notebooks."""

    _bar: Any = None

    def _draw(self, done: int, seconds: float) -> None:
        if self._bar is None:
            self._bar = self._made(seconds)
        self._bar.update(min(done, self._total) - self._bar.n)

    def _made(self, seconds: float) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a notebook without widgets gets a line
            from tqdm.auto import tqdm
        bar = tqdm(
            total=self._total, desc=self._label, unit="B", unit_scale=True, leave=False,
            file=self._stream,
        )  # fmt: skip
        bar.start_t -= seconds  # for its rate: it began when the read did
        return bar

    def _wipe(self) -> None:
        self._bar.close()


def is_watched(stream: TextIO | None) -> bool:
    """Whether a person looks at it: it is a terminal, or belongs to a notebook."""
    if stream is None:
        return False
    with contextlib.suppress(ValueError):  # it was closed
        return stream.isatty() or _is_in_notebook()
    return False


def _is_in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


@contextlib.contextmanager
def watched(label: str | None, total: int) -> Iterator[tuple[_core.ReadCounter, ...]]:
    """Shows the progress of a read that uses the given counter; gives none if nobody looks.

    Another thread draws, because the engine's reading threads don't take the GIL. If `label` is
    None, as on all ranks but the first, nothing is shown.
    """
    if label is None or not is_watched(sys.stderr):
        yield ()
        return
    counter = _core.ReadCounter()
    ended = Event()
    thread = Thread(
        target=_draw_until, args=(ended, label, total, counter), name="df-progress", daemon=True
    )
    try:
        thread.start()
    except RuntimeError:  # no thread can be had: the read matters more
        yield ()
        return
    try:
        yield (counter,)
    finally:
        ended.set()
        thread.join(_JOIN_SECONDS)  # a terminal that is stopped would hold it, and the restore


def _draw_until(ended: Event, label: str, total: int, counter: _core.ReadCounter) -> None:
    if ended.wait(_QUIET_SECONDS):
        return
    # Drawing must not harm a restore, whatever stream or tqdm do.
    with contextlib.suppress(Exception), _progress_of(label, total) as progress:
        while not ended.wait(_REDRAW_SECONDS):
            progress.update(counter.bytes)


def _progress_of(label: str, total: int) -> Progress:
    kind = TqdmProgress if _has_tqdm() else Progress
    return kind(label, total, start=time.monotonic() - _QUIET_SECONDS)


def _has_tqdm() -> bool:
    try:
        import tqdm  # noqa: F401
    except ImportError:
        return False
    return True
