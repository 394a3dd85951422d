"""From raw segments to the results of a saver of a state of which only a part changes."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

from lab.measure.loop import Experiment, Segment
from lab.measure.loop_summary import (
    BASELINE_SPREAD_MAX,
    Spread,
    Target,
    baseline_spread,
    rows,
    spread,
    target,
)
from lab.writers.loop import Saver, Window, WindowLatency
from lab.writers.loop_partial import AdapterTorchSave

BYTES_TARGET = 1.10  # of the bytes that changed, beside headers
RATIO_TARGET = 1.3  # of stall and run time, over those of the adapter alone
JUDGED = (Window.name, WindowLatency.name)
ALONE = AdapterTorchSave.name  # others are compared with it


@dataclass(frozen=True)
class Partial:
    """One saver; None if nothing could be measured. Spreads are over the rounds."""

    saver: str
    run_ratio: Spread | None  # over the adapter alone, in the same round
    stall_ratio: Spread | None  # of the medians of both
    changed_bytes: Spread | None  # a save, in the mean of those that were looked at
    new_bytes: Spread | None
    worst_of_changed: float | None  # of one save: new bytes without headers over changed bytes
    saves: int  # that were looked at
    restore_seconds: Spread | None
    lost_bytes: int | None  # the most that a restore did not bring back
    lost_parts: tuple[str, ...]


def partials(experiment: Experiment, segments: list[Segment]) -> list[Partial]:
    return [partial(saver, segments) for saver in experiment.savers]


def partial(saver: type[Saver], segments: list[Segment]) -> Partial:
    mine = [one for one in segments if one.saver == saver.name and not one.fault]
    alone = {one.round_index: one for one in segments if one.saver == ALONE and not one.fault}
    pairs = [(one, alone[one.round_index]) for one in mine if one.round_index in alone]
    if saver.is_baseline:
        pairs = []
    looked_at = [one.examined for one in mine if one.examined]
    saves = [save for examined in looked_at for save in examined["saves"]]
    return Partial(
        saver.name,
        spread([one.seconds / other.seconds for one, other in pairs]),
        spread([stall(one) / stall(other) for one, other in pairs]),
        spread([mean(one, "changed_bytes") for one in looked_at]),
        spread([mean(one, "new_bytes") for one in looked_at]),
        max((of_changed(save) for save in saves), default=None),
        len(saves),
        spread([one["restore_seconds"] for one in looked_at]),
        max((one["lost_bytes"] for one in looked_at), default=None),
        tuple(sorted({part for one in looked_at for part in one["lost_parts"]})),
    )


def stall(segment: Segment) -> float:
    return median(save.stall_seconds for save in segment.saves)


def mean(examined: dict[str, Any], name: str) -> float:
    values = [int(save[name]) for save in examined["saves"]]
    return sum(values) / len(values)


def of_changed(save: dict[str, int]) -> float:
    return (save["new_bytes"] - save["header_bytes"]) / save["changed_bytes"]


Measured = tuple[str, float, Callable[[Partial], Spread | None]]
RATIOS: tuple[Measured, ...] = (
    ("stall over that of the adapter alone", RATIO_TARGET, lambda one: one.stall_ratio),
    ("run time over that of the adapter alone", RATIO_TARGET, lambda one: one.run_ratio),
)


def targets(experiment: Experiment, segments: list[Segment]) -> list[Target]:
    """Of trainings that have an adapter. Times have a verdict unless the machine was busy."""
    quiet = baseline_spread(rows(experiment, segments)) <= BASELINE_SPREAD_MAX
    judged: list[Target] = []
    for one in partials(experiment, segments):
        if one.saver not in JUDGED or one.run_ratio is None:
            continue
        if one.worst_of_changed is not None:
            what = f"bytes over those that changed, headers aside, worst of {one.saves} saves"
            worst = one.worst_of_changed
            met = worst <= BYTES_TARGET
            judged.append(Target(one.saver, what, BYTES_TARGET, worst, met, both_sides=False))
        for what, bound, value in RATIOS if quiet else ():
            measured = value(one)
            if measured is not None:
                judged.append(target(one.saver, what, bound, measured))
    return judged
