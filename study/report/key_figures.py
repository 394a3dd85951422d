"""The few figures that a reader should have seen first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from study.report.findings.common import measured, median, mixing
from study.report.findings.speed import rivals
from study.report.findings.trust import resumed_whole
from study.report.summary import Group, Study
from study.report.table import seconds
from study.report.tables.common import framework, is_ours, writer
from study.report.tables.faults import FOUND, KEPT
from study.report.tables.restarts import SAME


@dataclass(frozen=True)
class KeyFigure:
    figure: str
    caption: str


def key_figures(study: Study) -> list[KeyFigure]:
    return [*stall(study), *power(study), *damage(study), *restarts(study)]


def stall(study: Study) -> Iterator[KeyFigure]:
    """Of the first workload and framework; against the best that does not mix steps."""
    passed_over = {group["writer"] for group in mixing(study)}
    groups = measured(study, "cost")
    workload = groups[0]["workload"] if groups else None
    here = [
        one for one in groups if one["workload"] == workload and one["writer"] not in passed_over
    ]
    for ours, best in list(rivals(here, "stall_seconds"))[:1]:
        yield KeyFigure(
            seconds(median(ours, "stall_seconds")),
            f"is how long a save holds the training up with {writer(ours)}; "
            f"{seconds(median(best, 'stall_seconds'))} with the best other writer of "
            f"{framework(ours)} that keeps steps apart ({writer(best)})",
        )


def power(study: Study) -> Iterator[KeyFigure]:
    groups = [one for one in measured(study, "crash")
              if one.text("fault").startswith("power cut after")]  # fmt: skip
    yield from share(groups, KEPT, "keep the newest checkpoint when the power fails after the save")


def damage(study: Study) -> Iterator[KeyFigure]:
    good = (FOUND, "harmless")
    yield from share(measured(study, "corruption"), good, "let no damage to their files pass")


def share(groups: list[Group], good: tuple[str, ...], what: str) -> Iterator[KeyFigure]:
    """Of the writers; those of DeepFreeze counted apart."""
    names = dict.fromkeys(map(writer, groups))
    bad = {writer(group) for group in groups if group["verdict"] not in good}
    if names:
        ours = dict.fromkeys(writer(group) for group in groups if is_ours(group))
        well = [name for name in ours if name not in bad]
        others = len(names) - len(ours)
        yield KeyFigure(
            f"{len(names) - len(bad) - len(well)} of {others}",
            f"other writers {what}; of DeepFreeze's own {len(well)} of {len(ours)}",
        )


def restarts(study: Study) -> Iterator[KeyFigure]:
    whole = [one for one in resumed_whole(study) if is_ours(one)]
    if whole:
        same = [one for one in whole if one["verdict"] == SAME]
        yield KeyFigure(
            f"{len(same)} of {len(whole)}",
            "killed trainings that DeepFreeze resumed end bit for bit as undisturbed ones do",
        )
