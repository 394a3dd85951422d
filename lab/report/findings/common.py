"""A sentence with the measurements that it rests on, and what makers of sentences share."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lab.measure.row import FAILED, NO_SPACE, TIMED_OUT
from lab.report.compare import named
from lab.report.summary import Group, Study
from lab.report.tables.common import writer

NAMED_MAX = 6  # writers in one sentence
CHANCE = 0.05  # that a writer which loses at the rate that is told passes all the same
BROKEN = (FAILED, TIMED_OUT, NO_SPACE)  # the statuses of rows that should have been ok


@dataclass(frozen=True)
class Finding:
    theme: str  # an experiment's name
    sentence: str
    rows: tuple[str, ...]  # the measurements that it rests on


def finding(theme: str, sentence: str, groups: Iterable[Group]) -> Finding:
    return Finding(theme, sentence, tuple(dict.fromkeys(map(named, groups))))


def measured(study: Study, experiment: str) -> list[Group]:
    """What went well, of whole writers: `cost` also has a row about the machine."""
    return [
        group for group in study.groups(experiment)
        if group.ok and (group["workload"] or experiment != "cost")
    ]  # fmt: skip


def torn(study: Study) -> list[Group]:
    return [group for group in measured(study, "tearing") if group["verdict"] == "torn"]


def mixing(study: Study) -> list[Group]:
    """Torn whatever the state: not only where one tensor is larger than all of most networks."""
    kept = {g["writer"] for g in measured(study, "tearing") if g["verdict"] != "torn"}
    return [group for group in torn(study) if group["writer"] not in kept]


def median(group: Group, column: str) -> float:
    figure = group.figure(column)
    return figure.median if figure else float("inf")


def some(names: Iterable[str]) -> str:
    """At most NAMED_MAX of them, and how many more."""
    found = list(dict.fromkeys(names))
    shown, more = found[:NAMED_MAX], len(found) - NAMED_MAX
    return "; ".join(shown) + (f" and {more} more" if more > 0 else "")


def plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def verdicts(
    study: Study, theme: str, groups: list[Group], good: Sequence[str], what: str
) -> Iterator[Finding]:
    """How many writers do well in each of their rows, which do not, and who could not be judged."""
    failures = [group for group in study.groups(theme) if group["status"] in BROKEN]
    failed = {writer(group) for group in failures}
    judged = [group for group in groups if writer(group) not in failed]
    bad = [group for group in judged if group["verdict"] not in good]
    names = dict.fromkeys(map(writer, judged))
    poor = dict.fromkeys(map(writer, bad))
    if names:
        rest = f"; these do not: {some(poor)}" if poor else ""
        broken = f". Not judged, for it failed here: {some(sorted(failed))}" if failed else ""
        count = f"{len(names) - len(poor)} of {len(names)} writers"
        yield finding(theme, f"{count} {what}{rest}{broken}.", [*bad, *judged, *failures])


def tries_of(groups: Iterable[Group]) -> list[int]:
    """How often each writer was put to it, over all of its rows; least first, 0: not known."""
    counts: Counter[str] = Counter()
    for group in groups:
        counts[writer(group)] += int(group.text("trials") or 0)
    return sorted(counts.values())


def in_tries(groups: Iterable[Group]) -> str:
    tries = tries_of(groups)
    if not all(tries) or not tries:
        return ""
    span = f"{tries[0]}" if tries[0] == tries[-1] else f"{tries[0]} to {tries[-1]}"
    return f", in each of {span} tries"


def unseen(groups: Iterable[Group]) -> str:
    """What so few tries can miss."""
    tries = tries_of(groups)
    if not all(tries) or not tries:
        return ""
    rate = 1 - CHANCE ** (1 / tries[0])
    return (
        f" (one that loses in {100 * rate:.0f} % of such tries still passes {tries[0]} with a "
        f"chance of {100 * CHANCE:.0f} %)"
    )
