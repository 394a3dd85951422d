"""The file that Prometheus' node exporter reads: written after each save, replaced whole."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Sequence

from deepfreeze import _core
from deepfreeze.base.arguments import absolute
from deepfreeze.metrics.counters import SaveCounters
from deepfreeze.saving.handle import SaveHandle

log = logging.getLogger("deepfreeze")


class Textfile:
    """Counters of one checkpointer and their file. Nothing raises: it must not end a training."""

    def __init__(self, path: str | os.PathLike[str], run: str | os.PathLike[str]) -> None:
        self._path = absolute(path, "prometheus_textfile")
        if self._path.suffix != ".prom":
            raise ValueError(
                f"prometheus_textfile: {self._path} does not end in .prom, "
                "and the node exporter reads no other file"
            )
        self._counters = SaveCounters(os.path.abspath(run))
        self._warned = False

    def watch(self, tiers: Callable[[], Sequence[_core.TierStatus]]) -> Textfile:
        """From now on the file also tells how far the tiers are."""
        self._counters.tiers = tiers
        return self

    def skipped(self) -> None:
        """Counts a skipped save; the save in flight will write the file."""
        self._counters.skipped()

    def settled(self, handle: SaveHandle) -> None:
        """Called by the thread that completes saves, after each."""
        try:
            self._counters.settled(handle)
        except Exception as error:
            self._warn(error)
        self.waiting()

    def waiting(self) -> None:
        """Writes the file; called by that thread when a save is on its way to a tier, too."""
        try:
            self._write(self._counters.text())
        except Exception as error:
            self._warn(error)

    def _write(self, text: str) -> None:
        # The suffix is not .prom, so that nobody reads a half-written file; no two threads share
        # it.
        part = self._path.with_name(f"{self._path.name}.{threading.get_native_id()}.tmp")
        try:
            # A path that is no UTF-8 must not cost the file. With the umask's mode, as another
            # user reads it; without a sync: after a power cut its numbers would be stale.
            part.write_text(text, encoding="utf-8", errors="replace", newline="\n")
            part.replace(self._path)
        except BaseException:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise

    def _warn(self, error: Exception) -> None:
        if self._warned:
            return
        self._warned = True
        with contextlib.suppress(Exception):
            log.warning("counters are not written (reported once): %s", error)


def watched(textfile: Textfile | None, engine: _core.Engine) -> Textfile | None:
    """The same file, which from now on tells of the engine's tiers, too."""
    return None if textfile is None else textfile.watch(engine.tiers)


def textfile_of(
    run: str | os.PathLike[str], path: str | os.PathLike[str] | None
) -> Textfile | None:
    """The file that a checkpointer was asked for, if any."""
    return None if path is None else Textfile(path, run)
