"""From raw segments to one row a saver: paired ratios, quantiles, targets."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any

from lab.measure.loop import Experiment, Segment
from lab.writers.loop import NoneInBackward, Saver, SaveRecord

SAVES_FOR_P99 = 200  # with fewer, the maximum is the honest figure
ROUNDS_FOR_QUANTILES = 20  # with fewer, minimum and maximum are the honest spread
STALL_SECONDS_TARGET = 0.010
COPIES_TARGET = 1.5
RATIO_TARGET = 1.05
BASELINE_SPREAD_MAX = 1.25  # slowest to fastest round without checkpoints; above it, no verdict
WINDOW_SAVERS = ("df-latency", "df-throughput", "df-default")


@dataclass(frozen=True)
class Spread:
    """A median over rounds and how far they spread."""

    median: float
    low: float
    high: float
    kind: str  # "min-max" or "5-95 %"
    count: int


def quantile(ordered: list[float], share: float) -> float:
    """The smallest of the sorted values that `share` of them don't exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def worst_stall(ordered: list[float]) -> tuple[str, float]:
    if len(ordered) >= SAVES_FOR_P99:
        return "p99", quantile(ordered, 0.99)
    return f"max of {len(ordered)}", ordered[-1]


def spread(values: list[float]) -> Spread | None:
    if not values:
        return None
    ordered = sorted(values)
    if len(ordered) >= ROUNDS_FOR_QUANTILES:
        low, high, kind = quantile(ordered, 0.05), quantile(ordered, 0.95), "5-95 %"
    else:
        low, high, kind = ordered[0], ordered[-1], "min-max"
    return Spread(median(ordered), low, high, kind, len(ordered))


Row = dict[str, Any]  # one saver in one experiment, None where nothing could be measured

# The figures of a row. Times in seconds; of each round a value, over which a Spread is made.
OF_SEGMENTS: dict[str, Callable[[Segment, Experiment], float | None]] = {
    "step_seconds": lambda one, experiment: one.seconds / experiment.steps,
    "written_bytes_per_save": lambda one, experiment: over(one.written_bytes, experiment),
    "file_bytes": lambda one, _: one.file_bytes,  # of one checkpoint
    "drain_seconds": lambda one, _: one.drain_seconds,
    "first_save_seconds": lambda one, _: one.first_save_seconds,
}
# Beside the same round's run without checkpoints.
OF_PAIRS: dict[str, Callable[[Segment, Segment, Experiment], float | None]] = {
    "ratio": lambda one, none, _: one.seconds / none.seconds,
    "loop_ratio": lambda one, none, _: loop(one) / loop(none),  # without the wait at the end
    "added_seconds_per_save": lambda one, none, at: over(one.seconds - none.seconds, at),
    "copies_per_save": lambda one, none, at: (  # in one-thread copies of the state
        over((one.seconds - none.seconds) / none.copy_seconds, at) if none.copy_seconds else None
    ),
    "added_cpu_seconds_per_save": lambda one, none, at: over(
        one.cpu_seconds - none.cpu_seconds, at
    ),
}
# Medians over all saves; the third is as the saver itself says.
OF_SAVES: dict[str, Callable[[SaveRecord], float | None]] = {
    "call_p50_seconds": lambda save: save.call_seconds,
    "fence_p50_seconds": lambda save: save.fence_seconds,
    "fence_reported_p50_seconds": lambda save: save.fence_reported_seconds,
    "durable_p50_seconds": lambda save: save.durable_seconds,
}


def rows(experiment: Experiment, segments: list[Segment]) -> list[Row]:
    return [row(experiment, saver, segments) for saver in experiment.savers]


def row(experiment: Experiment, saver: type[Saver], segments: list[Segment]) -> Row:
    baseline = NoneInBackward.name if saver.in_backward else Saver.name
    mine = [segment for segment in segments if segment.saver == saver.name]
    good = [segment for segment in mine if not segment.fault]
    pairs = paired(good, [segment for segment in segments if segment.saver == baseline])
    records = [record for segment in good for record in segment.saves]
    stalls = sorted(record.stall_seconds for record in records)
    worst_is, worst = worst_stall(stalls) if stalls else ("", None)
    of_pairs = [] if saver.is_baseline else pairs
    return {
        "saver": saver.name,
        "title": saver.title,
        "synced": saver.synced,
        "baseline": baseline,
        "status": status(mine),  # "ok", "failed", "not installed" or "not run"
        "faults": list(dict.fromkeys(one.fault for one in mine if one.fault)),
        "rounds_good": len(good),
        "rounds_run": len(mine),
        **{name: spread(known(value(one, experiment) for one in good))
           for name, value in OF_SEGMENTS.items()},
        **{name: spread(known(value(*pair, experiment) for pair in of_pairs))
           for name, value in OF_PAIRS.items()},
        "stall_p50_seconds": middle(stalls),
        "stall_p95_seconds": quantile(stalls, 0.95) if stalls else None,
        "stall_worst_seconds": worst,
        "stall_worst_is": worst_is,  # "p99", or "max of n" where there are too few saves
        **{name: middle(known(map(value, records))) for name, value in OF_SAVES.items()},
        "saves_requested": sum(segment.saves_expected for segment in mine),
        "saves_committed": sum(segment.committed for segment in mine),
        "saves_skipped": sum(record.skipped for segment in mine for record in segment.saves),
        # Every last loss is the baseline's of that round.
        "same_training": all(one.last_loss == none.last_loss for one, none in pairs)
        if pairs else None,
    }  # fmt: skip


def known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def status(segments: list[Segment]) -> str:
    if any(segment.error == "not installed" for segment in segments):
        return "not installed"
    if not segments:
        return "not run"
    return "failed" if any(segment.fault for segment in segments) else "ok"


def paired(good: list[Segment], baselines: list[Segment]) -> list[tuple[Segment, Segment]]:
    """Each with the same round's run without checkpoints."""
    by_round = {one.round_index: one for one in baselines if not one.fault}
    return [(one, by_round[one.round_index]) for one in good if one.round_index in by_round]


def loop(segment: Segment) -> float:
    return segment.seconds - segment.drain_seconds


def over(value: float | None, experiment: Experiment) -> float | None:
    return None if value is None else value / max(1, experiment.saves)


def middle(values: list[float]) -> float | None:
    return quantile(sorted(values), 0.5) if values else None


@dataclass(frozen=True)
class Target:
    """A promise of the design, and what was measured."""

    saver: str
    what: str
    bound: float
    measured: float
    met: bool
    both_sides: bool  # some rounds lie below the bound, others above


def baseline_spread(found: list[Row]) -> float:
    """How much longer the slowest round without checkpoints took than the fastest."""
    spreads = [
        one["step_seconds"] for one in found if one["saver"] == Saver.name and one["step_seconds"]
    ]
    return max((one.high / one.low for one in spreads), default=1.0)


def targets(experiment: Experiment, found: list[Row]) -> list[Target]:
    """Those that apply: to capture in the window, at intervals for which there is a promise.

    None where the runs without checkpoints differ too much to say anything.
    """
    judged: list[Target] = []
    if baseline_spread(found) > BASELINE_SPREAD_MAX:
        return judged
    for one in found:
        if one["saver"] not in WINDOW_SAVERS:
            continue
        if experiment.every == 1 and one["copies_per_save"] is not None:
            what = "added time per step, in one-core copies of the state"
            judged.append(target(one["saver"], what, COPIES_TARGET, one["copies_per_save"]))
        if experiment.every == 4 and one["ratio"] is not None:
            judged.append(target(one["saver"], "run time ratio", RATIO_TARGET, one["ratio"]))
        worst = one["stall_worst_seconds"]
        if one["saver"] == "df-latency" and worst is not None:
            what = f"stall in seconds, {one['stall_worst_is']}"
            bound = STALL_SECONDS_TARGET
            judged.append(
                Target(one["saver"], what, bound, worst, worst <= bound, both_sides=False)
            )
    return judged


def target(saver: str, what: str, bound: float, measured: Spread) -> Target:
    met = measured.median <= bound
    both_sides = measured.low <= bound < measured.high
    return Target(saver, what, bound, measured.median, met, both_sides)
