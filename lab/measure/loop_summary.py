"""From raw segments to one row a saver: paired ratios, quantiles, targets."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from lab.measure.loop import Experiment, Segment
from lab.writers.loop import NoneInBackward, Saver

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


@dataclass(frozen=True)
class Row:
    """One saver in one experiment. Times in seconds, None where nothing could be measured."""

    saver: str
    title: str
    synced: str
    baseline: str
    status: str  # "ok", "failed", "not installed" or "not run"
    faults: list[str]
    rounds_good: int
    rounds_run: int
    step_seconds: Spread | None  # run time over steps
    ratio: Spread | None  # run time to that of the same round without checkpoints
    loop_ratio: Spread | None  # the same without the wait at the end
    added_seconds_per_save: Spread | None
    copies_per_save: Spread | None  # added time in one-thread copies of the state
    added_cpu_seconds_per_save: Spread | None
    written_bytes_per_save: Spread | None
    file_bytes: Spread | None  # of one checkpoint
    drain_seconds: Spread | None
    first_save_seconds: Spread | None
    stall_p50_seconds: float | None
    stall_p95_seconds: float | None
    stall_worst_seconds: float | None
    stall_worst_is: str  # "p99", or "max of n" where there are too few saves
    call_p50_seconds: float | None
    fence_p50_seconds: float | None
    fence_reported_p50_seconds: float | None  # as the saver itself says
    durable_p50_seconds: float | None
    saves_requested: int
    saves_committed: int
    saves_skipped: int
    same_training: bool | None  # every last loss is the baseline's of that round


@dataclass(frozen=True)
class Pair:
    """A good segment and the same round's run without checkpoints."""

    segment: Segment
    baseline: Segment


def rows(experiment: Experiment, segments: list[Segment]) -> list[Row]:
    return [row(experiment, saver, segments) for saver in experiment.savers]


def row(experiment: Experiment, saver: type[Saver], segments: list[Segment]) -> Row:
    baseline = NoneInBackward.name if saver.in_backward else Saver.name
    mine = [segment for segment in segments if segment.saver == saver.name]
    good = [segment for segment in mine if not segment.fault]
    pairs = paired(good, [segment for segment in segments if segment.saver == baseline])
    saves = max(1, experiment.saves)
    records = [record for segment in good for record in segment.saves]
    stalls = sorted(record.stall_seconds for record in records)
    worst_is, worst = worst_stall(stalls) if stalls else ("", None)

    def over_segments(value: Callable[[Segment], float | None]) -> Spread | None:
        return spread([found for one in good if (found := value(one)) is not None])

    def over_pairs(value: Callable[[Pair], float | None]) -> Spread | None:
        if saver.is_baseline:
            return None
        return spread([found for one in pairs if (found := value(one)) is not None])

    return Row(
        saver=saver.name,
        title=saver.title,
        synced=saver.synced,
        baseline=baseline,
        status=status(mine),
        faults=list(dict.fromkeys(one.fault for one in mine if one.fault)),
        rounds_good=len(good),
        rounds_run=len(mine),
        step_seconds=over_segments(lambda one: one.seconds / experiment.steps),
        ratio=over_pairs(lambda pair: pair.segment.seconds / pair.baseline.seconds),
        loop_ratio=over_pairs(lambda pair: loop(pair.segment) / loop(pair.baseline)),
        added_seconds_per_save=over_pairs(lambda pair: added(pair) / saves),
        copies_per_save=over_pairs(lambda pair: copies(pair, saves)),
        added_cpu_seconds_per_save=over_pairs(
            lambda pair: (pair.segment.cpu_seconds - pair.baseline.cpu_seconds) / saves
        ),
        written_bytes_per_save=over_segments(
            lambda one: None if one.written_bytes is None else one.written_bytes / saves
        ),
        file_bytes=over_segments(lambda one: one.file_bytes),
        drain_seconds=over_segments(lambda one: one.drain_seconds),
        first_save_seconds=over_segments(lambda one: one.first_save_seconds),
        stall_p50_seconds=quantile(stalls, 0.5) if stalls else None,
        stall_p95_seconds=quantile(stalls, 0.95) if stalls else None,
        stall_worst_seconds=worst,
        stall_worst_is=worst_is,
        call_p50_seconds=middle([record.call_seconds for record in records]),
        fence_p50_seconds=middle([record.fence_seconds for record in records]),
        fence_reported_p50_seconds=middle(
            [
                one.fence_reported_seconds
                for one in records
                if one.fence_reported_seconds is not None
            ]
        ),
        durable_p50_seconds=middle(
            [one.durable_seconds for one in records if one.durable_seconds is not None]
        ),
        saves_requested=sum(segment.saves_expected for segment in mine),
        saves_committed=sum(segment.committed for segment in mine),
        saves_skipped=sum(record.skipped for segment in mine for record in segment.saves),
        same_training=same_training(pairs),
    )


def status(segments: list[Segment]) -> str:
    if any(segment.error == "not installed" for segment in segments):
        return "not installed"
    if not segments:
        return "not run"
    return "failed" if any(segment.fault for segment in segments) else "ok"


def paired(good: list[Segment], baselines: list[Segment]) -> list[Pair]:
    by_round = {one.round_index: one for one in baselines if not one.fault}
    return [Pair(one, by_round[one.round_index]) for one in good if one.round_index in by_round]


def loop(segment: Segment) -> float:
    return segment.seconds - segment.drain_seconds


def added(pair: Pair) -> float:
    return pair.segment.seconds - pair.baseline.seconds


def copies(pair: Pair, saves: int) -> float | None:
    if not pair.baseline.copy_seconds:
        return None
    return added(pair) / saves / pair.baseline.copy_seconds


def middle(values: list[float]) -> float | None:
    return quantile(sorted(values), 0.5) if values else None


def same_training(pairs: list[Pair]) -> bool | None:
    if not pairs:
        return None
    return all(pair.segment.last_loss == pair.baseline.last_loss for pair in pairs)


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
    spreads = [one.step_seconds for one in found if one.saver == Saver.name and one.step_seconds]
    return max((one.high / one.low for one in spreads), default=1.0)


def targets(experiment: Experiment, found: list[Row]) -> list[Target]:
    """Those that apply: to capture in the window, at intervals for which there is a promise.

    None where the runs without checkpoints differ too much to say anything.
    """
    judged: list[Target] = []
    if baseline_spread(found) > BASELINE_SPREAD_MAX:
        return judged
    for one in found:
        if one.saver not in WINDOW_SAVERS:
            continue
        if experiment.every == 1 and one.copies_per_save is not None:
            what = "added time per step, in one-core copies of the state"
            judged.append(target(one.saver, what, COPIES_TARGET, one.copies_per_save))
        if experiment.every == 4 and one.ratio is not None:
            judged.append(target(one.saver, "run time ratio", RATIO_TARGET, one.ratio))
        worst = one.stall_worst_seconds
        if one.saver == "df-latency" and worst is not None:
            what = f"stall in seconds, {one.stall_worst_is}"
            bound = STALL_SECONDS_TARGET
            judged.append(Target(one.saver, what, bound, worst, worst <= bound, both_sides=False))
    return judged


def target(saver: str, what: str, bound: float, measured: Spread) -> Target:
    met = measured.median <= bound
    both_sides = measured.low <= bound < measured.high
    return Target(saver, what, bound, measured.median, met, both_sides)
