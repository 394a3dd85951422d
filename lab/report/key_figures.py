"""The few figures that a reader should have seen first."""

from collections.abc import Iterator
from dataclasses import dataclass

from lab.report.findings.common import in_tries, measured, median, mixing, plural
from lab.report.findings.speed import rivals
from lab.report.findings.trust import resumed_whole
from lab.report.method import on_one_machine
from lab.report.summary import Group, Study
from lab.report.table import seconds
from lab.report.tables.common import FRAMEWORKS, framework, is_ours, writer
from lab.report.tables.faults import FOUND, KEPT, SAME


@dataclass(frozen=True)
class KeyFigure:
    figure: str
    caption: str


def key_figures(study: Study) -> list[KeyFigure]:
    return [*stall(study), *power(study), *damage(study), *restarts(study)]


def stall(study: Study) -> Iterator[KeyFigure]:
    """Of the largest state, in the first of FRAMEWORKS; of the others how many are shorter, too."""
    passed_over = {group["writer"] for group in mixing(study)}
    groups = [one for one in measured(study, "cost") if one["writer"] not in passed_over]
    # By name if two are as large: measurements come in shuffled order.
    sizes = {(median(one, "state_bytes"), one.text("workload")) for one in groups}
    _, workload = max(sizes, default=(0.0, ""))
    here = [one for one in groups if one["workload"] == workload]
    pairs = sorted(rivals(here, "stall_seconds"), key=lambda pair: place(pair[0]))
    stalls = [
        (median(ours, "stall_seconds"), median(best, "stall_seconds")) for ours, best in pairs
    ]
    shorter = sum(ours < best for ours, best in stalls)
    for (ours, best), (stall, theirs) in zip(pairs[:1], stalls, strict=False):
        yield KeyFigure(
            seconds(stall),
            f"is how long a save of the largest state measured ({workload}, {framework(ours)}) "
            f"holds the training up with {writer(ours)}; {seconds(theirs)} with the best "
            f"other writer there that keeps steps apart ({writer(best)}). DeepFreeze's is the "
            f"shorter one in {shorter} of {plural(len(pairs), 'framework')}",
        )


def place(group: Group) -> int:
    names = list(FRAMEWORKS)
    return names.index(name) if (name := group.text("framework")) in names else len(names)


def power(study: Study) -> Iterator[KeyFigure]:
    groups = [one for one in measured(study, "crash")
              if one.text("fault").startswith("power cut after")]  # fmt: skip
    what = "keep the newest checkpoint when the power fails after the save"
    yield from share(groups, KEPT, what + in_tries(groups))


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


# The page's first sentence: about measurements, not about possibilities.


QUESTIONS = {
    "cost": "how long a save holds the training up", "formats": "what is on disk",
    "crash": "what is left after a crash", "corruption": "who notices a changed bit",
}  # fmt: skip
NO_WRITER = ("", "none")


def lead(study: Study) -> str:
    found = most_writers(study)
    if not found:
        return "No checkpoint writer was measured yet."
    names, ours = (len(set(map(writer, some))) for some in (found, filter(is_ours, found)))
    told = f"{plural(names, 'checkpoint writer')} of {', '.join(frameworks(found))}"
    asked = ", ".join(question for name, question in QUESTIONS.items() if measured(study, name))
    where = " on one machine" if on_one_machine(study) else ""
    return f"{told} (DeepFreeze's own: {ours}), measured by the same ruler{where}" + (
        f": {asked}." if asked else "."
    )


def most_writers(study: Study) -> list[Group]:
    """Of the experiment that has most: they are named unlike in several."""
    asked = [name for name in QUESTIONS if measured(study, name)] or study.experiments
    experiments = (
        [g for g in measured(study, name) if g.text("writer") not in NO_WRITER] for name in asked
    )
    return max(experiments, key=lambda found: len(set(map(writer, found))), default=[])


def frameworks(groups: list[Group]) -> list[str]:
    there = {group["framework"] for group in groups}
    return [name for key, name in FRAMEWORKS.items() if key in there]
