"""Counts the outcomes of one checkpointer's saves, for Prometheus."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from deepfreeze import _core
from deepfreeze.errors import TornCaptureError
from deepfreeze.metrics.exposition import Family, Histogram, Sample, exposition
from deepfreeze.saving.handle import SaveHandle, SaveStatus


class SaveCounters:
    """Counts since the checkpointer was opened: a restart begins at 0. For any thread."""

    def __init__(self, run: str, clock: Callable[[], float] = time.time) -> None:
        self.tiers: Callable[[], Sequence[_core.TierStatus]] = list  # the farther ones, as they are
        # One rank today. The labels tell the files of several apart.
        self._labels = {"run": run, "rank": "0"}
        self._clock = clock
        # A signal handler may save while its own thread holds it.
        self._lock = threading.RLock()
        self._settled = self._failed = self._torn = self._skipped = 0
        self._written_bytes = self._copied_bytes = 0
        self._stall, self._fence, self._durable = Histogram(), Histogram(), Histogram()
        self._last_step = self._last_bytes = 0
        self._last_time = 0.0

    def skipped(self) -> None:
        """A save was skipped: the one before it was still in flight, or there was no room."""
        with self._lock:
            self._skipped += 1

    def settled(self, handle: SaveHandle) -> None:
        """A save is durable, has failed, or will not come to its last tier."""
        status, error = handle.status(), handle.local.exception()
        with self._lock:
            self._settled += 1
            self._written_bytes += status.bytes_written
            self._copied_bytes += status.bytes_copied
            if handle.begun:
                self._stall.observe(status.stall_seconds)
                self._fence.observe(status.fence_seconds)
            if error is None:
                if handle.durable.exception() is None:
                    self._is_durable(status)
                return
            self._failed += 1
            self._torn += isinstance(error, TornCaptureError)

    def _is_durable(self, status: SaveStatus) -> None:
        self._durable.observe(status.durable_seconds)
        self._last_step, self._last_bytes = status.step, status.bytes
        self._last_time = self._clock()

    def text(self) -> str:
        """All counters, in Prometheus' text format."""
        with self._lock:
            families = [*self._totals(), *self._seconds(), *self._last()]
        return exposition([*families, *_of_tiers(self.tiers())], self._labels)

    def _totals(self) -> list[Family]:
        return [
            _counter("saves_total", "Saves that ended, durable or failed.", self._settled),
            _counter("saves_failed_total", "Saves that failed, torn ones too.", self._failed),
            _counter("saves_torn_total", "Saves whose state changed without a fence.", self._torn),
            _counter("saves_skipped_total", "Saves left out: one ran, or no room.", self._skipped),
            _counter("written_bytes_total", "Bytes written to files.", self._written_bytes),
            _counter("copied_bytes_total", "Bytes copied out of the state.", self._copied_bytes),
        ]

    def _seconds(self) -> list[Family]:
        return [
            _histogram("save_stall_seconds", "Time inside save().", self._stall),
            _histogram("save_fence_seconds", "Time blocked in a save's fences.", self._fence),
            _histogram("save_durable_seconds", "Time from save() until durable.", self._durable),
        ]

    def _last(self) -> list[Family]:
        return [
            _gauge("last_durable_step", "Step of the newest durable save.", self._last_step),
            _gauge(
                "last_durable_timestamp_seconds",
                "When it became durable, since the epoch; 0 before the first.",
                self._last_time,
            ),
            _gauge("last_durable_bytes", "Bytes of its data.", self._last_bytes),
        ]


def _of_tiers(tiers: Sequence[_core.TierStatus]) -> list[Family]:
    if not tiers:
        return []

    def family(name: str, kind: str, text: str, value: Callable[[_core.TierStatus], int]) -> Family:
        samples = [Sample(value(tier), "", ("tier", tier.path)) for tier in tiers]
        return Family(f"deepfreeze_tier_{name}", kind, text, tuple(samples))

    return [
        family(
            "waiting_checkpoints",
            "gauge",
            "Checkpoints that the tier waits for.",
            lambda tier: tier.waiting,
        ),
        family(
            "copied_bytes_total",
            "counter",
            "Bytes of files that were copied to the tier.",
            lambda tier: tier.bytes_total,
        ),
        family(
            "stored_bytes_total",
            "counter",
            "Bytes that were sent for them: fewer if files are packed.",
            lambda tier: tier.stored_total,
        ),
        family(
            "committed_total",
            "counter",
            "Checkpoints that were committed on the tier.",
            lambda tier: tier.committed,
        ),
        family(
            "left_out_total",
            "counter",
            "Checkpoints that were deleted before the tier had them.",
            lambda tier: tier.left_out,
        ),
        family(
            "refused_saves_total",
            "counter",
            "Saves that were refused or skipped for want of room.",
            lambda tier: tier.saves_refused,
        ),
        family(
            "failures_total",
            "counter",
            "Passes over the tier that failed.",
            lambda tier: tier.failures,
        ),
    ]


def _counter(name: str, text: str, value: int) -> Family:
    return Family(f"deepfreeze_{name}", "counter", text, (Sample(value),))


def _gauge(name: str, text: str, value: float) -> Family:
    return Family(f"deepfreeze_{name}", "gauge", text, (Sample(value),))


def _histogram(name: str, text: str, values: Histogram) -> Family:
    return Family(f"deepfreeze_{name}", "histogram", text, values.samples())
