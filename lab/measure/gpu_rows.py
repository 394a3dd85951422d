"""From segments to one row a saver, shaped as those of lab/measure/alone.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from lab.measure import loop_summary as summary
from lab.measure.lines import Row
from lab.measure.loop import Experiment, Segment
from lab.measure.loop_summary import spread
from lab.measure.memory import Peaks
from lab.writers.loop import Saver, SaveRecord
from lab.writers.loop_gpu import DeepFreeze

LINK_TARGET = 0.9
STALL_MS_TARGET = 5.0
RUN_TIME_TARGET, RUN_TIME_EVERY = 1.02, 4
# A smaller state is copied in the time that a callback in Python may take to say so.
LARGE_STATE_BYTES = 10_000_000_000


@dataclass(frozen=True)
class Taken:
    """One segment, and what was measured around it."""

    segment: Segment
    peaks: Peaks | None
    link: float  # GB/s in that round

    @property
    def first(self) -> SaveRecord:
        """It found none in flight, so that it waited for nothing but itself."""
        return self.segment.saves[0]

    def per_second(self, seconds: float | None) -> float | None:
        return self.segment.state_bytes / 1e9 / seconds if seconds else None

    def to_host(self) -> float | None:
        found = self.first.captured_seconds
        return self.per_second(self.first.call_seconds if found is None else found)


Pair = tuple[Taken, Taken]  # one, and the loop without checkpoints of its round


def rows(experiment: Experiment, taken: list[Taken]) -> list[Row]:
    segments = [one.segment for one in taken]
    return [row(experiment, each, taken) for each in summary.rows(experiment, segments)]


def row(experiment: Experiment, counted: summary.Row, taken: list[Taken]) -> Row:
    good = [one for one in taken if not one.segment.fault]
    mine = [one for one in good if one.segment.saver == counted.saver]
    worst = counted.stall_worst_seconds
    return {
        "workload": experiment.name,
        "every": experiment.every,
        "saver": counted.saver,
        "title": counted.title,
        "status": counted.status,
        "faults": counted.faults,
        "rounds": counted.rounds_good,
        "saves_committed": counted.saves_committed,
        "saves_requested": counted.saves_requested,
        "state_bytes": max((one.segment.state_bytes for one in mine), default=0),
        "stall_worst_ms": None if worst is None else worst * 1e3,
        "stall_worst_is": counted.stall_worst_is,
        "figures": figures(experiment.every, mine, paired(good, mine)),
    }


def paired(good: list[Taken], mine: list[Taken]) -> list[Pair]:
    rounds = {one.segment.round_index: one for one in good if one.segment.saver == Saver.name}
    found = [(one, rounds.get(one.segment.round_index)) for one in mine]
    return [(one, other) for one, other in found if other is not None and other is not one]


def figures(every: int, mine: list[Taken], pairs: list[Pair]) -> dict[str, Any]:
    """Each a spread, or None where there is nothing to measure."""
    saving = [one for one in mine if one.segment.saves]
    saves = [save for one in saving for save in one.segment.saves]
    found: dict[str, Iterable[float | None]] = {
        "step_ms": (steady(one, every) * 1e3 for one in mine),
        "run_time_ratio": (steady(one, every) / steady(none, every) for one, none in pairs),
        "until_durable_ratio": (one.segment.seconds / none.segment.seconds for one, none in pairs),
        "stall_ms": (save.stall_seconds * 1e3 for save in saves),
        "stream_wait_ms": (save.stream_wait_seconds * 1e3 for save in saves),
        "to_host_gb_per_second": (one.to_host() for one in saving),
        "to_host_of_link": (over(one.to_host(), one.link) for one in saving),
        "to_disk_gb_per_second": (one.per_second(one.first.durable_seconds) for one in saving),
        "host_peak_bytes": (peak(one, host) for one in mine),
        "device_peak_bytes": (peak(one, device) for one in mine),
        "host_above_bytes": (above(pair, host) for pair in pairs),
        "device_above_bytes": (above(pair, device) for pair in pairs),
    }
    spreads = {
        name: spread([value for value in values if value is not None])
        for name, values in found.items()
    }
    return {name: None if one is None else asdict(one) for name, one in spreads.items()}


def steady(one: Taken, every: int) -> float:
    """Seconds a step from the first measured save on, the wait for the last one left out.

    All periods are alike then: the save before goes on in them, and one is made at their end.
    """
    steps = one.segment.step_seconds[every:]
    return sum(steps) / len(steps)


def over(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit


def host(peaks: Peaks) -> int | None:
    return peaks.host_bytes


def device(peaks: Peaks) -> int | None:
    return peaks.device_bytes


def peak(one: Taken, which: Callable[[Peaks], int | None]) -> int | None:
    return None if one.peaks is None else which(one.peaks)


def above(pair: Pair, which: Callable[[Peaks], int | None]) -> int | None:
    """What a saver takes beside what the loop takes without it."""
    one, none = (peak(each, which) for each in pair)
    return None if one is None or none is None else one - none


def targets(experiment: Experiment, found: list[Row]) -> list[Row]:
    """What was promised of DeepFreeze, as far as this experiment can show it."""
    ours = next((one for one in found if one["saver"] == DeepFreeze.name), None)
    if ours is None:
        return []
    measured: list[tuple[str, float | None, str, float]] = []
    if max(each["state_bytes"] for each in found) >= LARGE_STATE_BYTES:
        rate, stall = median(ours, "to_host_of_link"), f"stall in ms, {ours['stall_worst_is']}"
        measured.append(("to host, of the link, median", rate, ">=", LINK_TARGET))
        measured.append((stall, ours["stall_worst_ms"], "<=", STALL_MS_TARGET))
    if experiment.every == RUN_TIME_EVERY:
        ratio = median(ours, "run_time_ratio")
        measured.append(("run time over the loop's alone, median", ratio, "<=", RUN_TIME_TARGET))
    place = {"workload": experiment.name, "every": experiment.every}
    return [{**place, **judged(*each)} for each in measured]


def median(row: Row, name: str) -> float | None:
    figure = row["figures"][name]
    return None if figure is None else float(figure["median"])


def judged(what: str, measured: float | None, sense: str, bound: float) -> Row:
    """Not met where nothing was measured."""
    met = measured is not None and (measured >= bound if sense == ">=" else measured <= bound)
    return {"what": what, "measured": measured, "sense": sense, "bound": bound, "met": met}
