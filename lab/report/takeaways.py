"""The advice to users. Each is given only if rows show the need, and names them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lab.report.findings.common import Finding, finding, measured, plural, some, torn
from lab.report.findings.trust import learns_otherwise, parts_missing, resumed_without
from lab.report.summary import Group, Study
from lab.report.tables.common import is_ours, writer
from lab.report.tables.faults import FOUND, KEPT, SILENT
from lab.report.tables.speed import AS_DECLARED, SYNCS_NOTHING

MODEL = "model"  # the part that has the weights
REMOVALS = ("unlink", "rmdir")
FOR_USERS, FOR_DEVELOPERS = "for users", "for framework developers"


def writers(groups: Iterable[Group]) -> Iterable[str]:
    return map(writer, groups)


@dataclass(frozen=True)
class Advice:
    """The sentence may name `{told}`, and `{count}`, how many writers it is about."""

    experiment: str
    needs_it: Callable[[Group], object]
    sentence: str
    told: Callable[[list[Group]], Iterable[str]] = writers
    of: Callable[[Study], list[Group]] | None = None  # in place of all that was measured

    def given(self, study: Study) -> list[Finding]:
        known = self.of(study) if self.of else measured(study, self.experiment)
        groups = [group for group in known if self.needs_it(group)]
        if not groups:
            return []
        count = plural(len(set(writers(groups))), "writer")
        sentence = self.sentence.format(told=some(self.told(groups)), count=count)
        return [finding(self.experiment, sentence, groups)]


def takeaways(study: Study) -> dict[str, list[Finding]]:
    return {
        audience: [found for advice in known for found in advice.given(study)]
        for audience, known in ADVICE.items()
    }


def is_silent(group: Group) -> bool:
    return group["verdict"] == SILENT


def silent_where_ours_tells(study: Study) -> list[Group]:
    groups = measured(study, "corruption")
    tells = any(group["verdict"] == FOUND and is_ours(group) for group in groups)
    return groups if tells else []


def is_lost_after(group: Group) -> bool:
    return group.text("fault").startswith("power cut after") and group["verdict"] not in KEPT


def is_left_with_nothing(group: Group) -> bool:
    return group["fault"] == "killed in the save" and group["verdict"] not in KEPT


def beside_weights(groups: list[Group]) -> list[str]:
    return [part for part in parts_missing(groups) if part != MODEL]


def says_nothing_when_full(group: Group) -> bool:
    return group.text("fault").startswith("no space left") and group["found"] != 1


def lost_before(group: Group) -> list[tuple[str, str]]:
    """Calls before which a kill left nothing, with their purpose; empty: not known."""
    calls = (str(one).partition(" ") for one in group.detail().get("lost_before", ()))
    return [(call, path) for call, _, path in calls]


def written_over(group: Group) -> str:
    """The file, where all of these calls write one; else empty."""
    paths = {path if "write" in call else "" for call, path in lost_before(group)}
    return paths.pop() if len(paths) == 1 else ""


def removed(group: Group) -> str:
    """The files that these calls remove or change; empty: they remove nothing."""
    calls = [(call, path.partition("/")[0]) for call, path in lost_before(group)]
    gone = {top for call, top in calls if call.startswith(REMOVALS)}
    made = {top for _, top in calls} - gone
    beside = f", beside calls for {', '.join(sorted(made))}" if made else ""
    return f"of {', '.join(sorted(gone))}{beside}" if gone else ""


ADVICE = {
    FOR_USERS: (
        Advice("corruption", is_silent,
            "Keep a checksum of each checkpoint and compare it before you resume, if yours is "
            "written by {told}: damage is loaded without a word."),
        Advice("crash", is_lost_after,
            "Sync the files, and the directory that has their names, before you delete the older "
            "checkpoint: a power cut after the save lost the newest of {told}."),
        Advice("determinism", lambda one: learns_otherwise(one) and beside_weights([one]),
            "Save more than the weights. A resumed training learnt otherwise where this was "
            "missing: {told}.", beside_weights, resumed_without),
        Advice("crash", is_left_with_nothing,
            "Never save over the only checkpoint: a kill in the save left nothing with {told}."),
        Advice("crash", says_nothing_when_full,
            "Watch the free space: a full disk was no error, a hang or a crash with {told}."),
    ),
    FOR_DEVELOPERS: (
        Advice("corruption", is_silent,
            "Checksum the data, not only the structure: {count} of those measured here load "
            "changed numbers.", of=silent_where_ours_tells),
        Advice("crash", lambda one: is_left_with_nothing(one) and written_over(one),
            "Write under another name, sync, then rename: readers and crashes see the old "
            "checkpoint or the new one. Neither was left where a kill came before a write to the "
            "file named here, and only there: {told}.",
            lambda groups: (f"{writer(one)} ({written_over(one)})" for one in groups)),
        Advice("crash", lambda one: is_left_with_nothing(one) and removed(one),
            "Remove the older checkpoint last, when the newer one has its name. Neither was left "
            "where a kill came before a removal: {told}.",
            lambda groups: (f"{writer(one)} ({removed(one)})" for one in groups)),
        Advice("crash",
            lambda one: is_left_with_nothing(one) and not written_over(one) and not removed(one),
            "Leave the older checkpoint as it is until the newer one can be loaded. Not so with "
            "{told}; by which calls the rows do not show."),
        Advice("cost", lambda one: one["synced"] == SYNCS_NOTHING,
            "Say whether a save that returned is on the device. With {count}, "
            f"{AS_DECLARED}, all syncing is left to their users."),
        Advice("tearing", lambda _: True,
            "A thread that writes live tensors writes several steps into one file: copy first, or "
            "find out and refuse. Torn: {told}.", of=torn),
        Advice("formats", lambda one: one["reproducible"] is False,
            "Write the same bytes for the same state: then checksums and deduplication can compare "
            "checkpoints. Other bytes each time: {told}."),
    ),
}  # fmt: skip
