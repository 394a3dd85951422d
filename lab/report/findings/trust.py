"""Whether what was saved is there, is right, and can be used."""

from collections.abc import Iterator

from lab.report.findings.common import (
    Finding,
    finding,
    in_tries,
    measured,
    plural,
    some,
    unseen,
    verdicts,
)
from lab.report.summary import Group, Study
from lab.report.tables.common import is_ours, split, writer
from lab.report.tables.faults import FOUND, HARMLESS, KEPT, REFUSED_WELL, SAME, SILENT
from lab.writers.tried import NAMES_OF_WRITERS

NO_RESTART = "FAILED"
NOT_BY_CHANCE = "no space left"  # one try shows it


def determinism(study: Study) -> Iterator[Finding]:
    whole = resumed_whole(study)
    for ours, name in ((True, "DeepFreeze"), (False, "the other writers")):
        found = [group for group in whole if is_ours(group) == ours]
        same = [group for group in found if group["verdict"] == SAME]
        if found:
            yield finding(
                "determinism",
                f"Where all parts of the state were saved, {len(same)} of {len(found)} trainings "
                f"that were killed and resumed with {name} end bit for bit as the undisturbed one.",
                found,
            )
    lacking = resumed_without(study)
    other = [group for group in lacking if learns_otherwise(group)]
    if lacking:
        yield finding(
            "determinism",
            f"Without a part of the state ({', '.join(parts_missing(lacking))}) {len(other)} of "
            f"{len(lacking)} resumed trainings learn otherwise: their weights or losses are no "
            "longer those of the undisturbed one.",
            lacking,
        )


def resumed_whole(study: Study) -> list[Group]:
    """All parts were saved, and nothing else had changed: whether they came back is judged."""
    return [
        group for group, whole in resumed(study)
        if whole and group["fault"] in ("killed", "killed in a save")
    ]  # fmt: skip


def resumed_without(study: Study) -> list[Group]:
    """A part was not saved, and did not come back; those that ended by that are not judged."""
    return [
        group for group, whole in resumed(study)
        if not whole and group["missing"] and group["verdict"] != NO_RESTART
    ]  # fmt: skip


def resumed(study: Study) -> list[tuple[Group, bool]]:
    """Each with whether it saved all that anybody saves in its framework."""
    groups = [group for group in measured(study, "determinism") if group["writer"] != "none"]
    parts = {
        framework: set().union(*(parts_of(group, "saved") for group in found))
        for (framework,), found in split(groups, "framework").items()
    }
    return [(one, parts_of(one, "saved") == parts[one.text("framework")]) for one in groups]


def parts_of(group: Group, column: str) -> set[str]:
    return set(filter(None, group.text(column).split(", ")))


def parts_missing(groups: list[Group]) -> list[str]:
    return sorted(set().union(*(parts_of(group, "missing") for group in groups)))


def learns_otherwise(group: Group) -> bool:
    """Not only the part that is missing differs: the model or its loss does."""
    return group.detail().get("model_differs_from") is not None


def crash(study: Study) -> Iterator[Finding]:
    groups = measured(study, "crash")
    for start, good, what in (
        ("power cut after the save", KEPT[:1], "still have the newest checkpoint when the power "
         "fails after their save has said that it is done"),
        ("power cut in the save", KEPT, "still have a checkpoint when the power fails in their "
         "save"),
        ("killed in the save", KEPT, "still have a checkpoint when they are killed in a save"),
        (NOT_BY_CHANCE, (REFUSED_WELL,), "refuse a save without space by an error, keep the "
         "older checkpoint and save again later"),
    ):  # fmt: skip
        found = [group for group in groups if group.text("fault").startswith(start)]
        tries = "" if start == NOT_BY_CHANCE else in_tries(found) + unseen(found)
        yield from verdicts(study, "crash", found, good, what + tries)


def corruption(study: Study) -> Iterator[Finding]:
    what = "notice every kind of damage that was done to their files, or come to no harm by it"
    yield from verdicts(study, "corruption", measured(study, "corruption"), (FOUND, HARMLESS), what)


def sdc(study: Study) -> Iterator[Finding]:
    groups = measured(study, "sdc")
    training = [group for group in groups if not group["writer"]]
    lost = [group for group in training if group["verdict"] == "lost"]
    if training:
        where = "".join(
            f" {workload}: {some(map(flipped, found))}."
            for (workload,), found in split(lost, "workload").items()
        )
        yield finding(
            "sdc",
            f"Flipped bits ruin the training in {len(lost)} of {len(training)} classes.{where}",
            [*lost, *training],
        )
    # A writer as it is: not one whose compression was turned off to have bits to flip.
    files = [group for group in groups if group["writer"] in NAMES_OF_WRITERS]
    yield from verdicts(study, "sdc", files, ("told",), "tell of one flipped bit, wherever it is")
    ruinous = {group["bits"] for group in lost}
    silent = [group for group in files if group["verdict"] == SILENT and group["bits"] in ruinous]
    if silent:
        yield finding(
            "sdc",
            "So a flip that ruins a training goes unnoticed with "
            f"{plural(len(set(map(writer, silent))), 'writer')}.",
            [*silent, *lost],
        )


def flipped(group: Group) -> str:
    """The class, of those of one training."""
    return f"{group['component']}, {group['bits']}, {group['flips']} at once"


def portability(study: Study) -> Iterator[Finding]:
    across = [
        group for group in measured(study, "portability") if reader(group)[0] != group["framework"]
    ]
    routes: dict[str, list[Group]] = {}
    for group in across:
        routes.setdefault(reader(group)[1], []).append(group)
    if across:
        told = "; ".join(f"{name} {equal_outputs(found)}" for name, found in routes.items())
        yield finding(
            "portability",
            f"Ways from one framework into another that give the same outputs: {told}.",
            across,
        )


def reader(group: Group) -> tuple[str, str]:
    """The framework, and how it reads."""
    name, _, route = group.text("reader").partition(", ")
    return name, route


def equal_outputs(found: list[Group]) -> str:
    verdicts_of = [group["verdict"] for group in found]
    equal, arrays = verdicts_of.count("equal outputs"), verdicts_of.count("arrays only")
    mapped = f" ({arrays} more after names and dimensions were mapped by hand)" if arrays else ""
    return f"{equal} of {len(found)}{mapped}"


def tearing(study: Study) -> Iterator[Finding]:
    what = (
        "give a snapshot of one step, or refuse, where the state goes on to change as soon as "
        "they allow that"
    )
    good = ("consistent", "refused")
    yield from verdicts(study, "tearing", measured(study, "tearing"), good, what)
