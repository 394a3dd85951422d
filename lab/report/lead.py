"""The page's first sentence: of what was measured, not of what could be."""

from __future__ import annotations

from lab.report.findings.common import measured, plural
from lab.report.sittings import on_one_machine
from lab.report.summary import Group, Study
from lab.report.tables.common import FRAMEWORKS, is_ours, writer

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
