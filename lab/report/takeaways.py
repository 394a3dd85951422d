"""What to do about it. Each advice is given only where rows show the need, and names them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lab.report.findings.common import Finding, finding, measured, plural, some, torn
from lab.report.findings.trust import learns_otherwise, parts_missing, resumed_without
from lab.report.summary import Group, Study
from lab.report.tables.common import is_ours, writer
from lab.report.tables.faults import FOUND, KEPT, SILENT
from lab.report.tables.speed import AS_DECLARED, SYNCS_NOTHING

MODEL = "model"  # the part that has the weights
REMOVALS = ("unlink", "rmdir")
FOR_USERS, FOR_DEVELOPERS = "for users", "for framework developers"


def takeaways(study: Study) -> dict[str, list[Finding]]:
    users: tuple[Callable[[Study], Iterator[Finding]], ...] = (
        check_yourself, sync_yourself, save_everything, write_beside, keep_space,
    )  # fmt: skip
    developers: tuple[Callable[[Study], Iterator[Finding]], ...] = (
        checksum, publish_last, snapshot, same_bytes,
    )  # fmt: skip
    return {
        FOR_USERS: [found for maker in users for found in maker(study)],
        FOR_DEVELOPERS: [found for maker in developers for found in maker(study)],
    }


def writers(groups: list[Group]) -> list[str]:
    return list(dict.fromkeys(map(writer, groups)))


def check_yourself(study: Study) -> Iterator[Finding]:
    silent = [g for g in measured(study, "corruption") if g["verdict"] == SILENT]
    if silent:
        yield finding(
            "corruption",
            "Keep a checksum of each checkpoint and compare it before you resume, if yours is "
            f"written by {some(writers(silent))}: damage is loaded without a word.",
            silent,
        )


def sync_yourself(study: Study) -> Iterator[Finding]:
    losing = [
        group for group in measured(study, "crash")
        if group.text("fault").startswith("power cut after") and group["verdict"] not in KEPT
    ]  # fmt: skip
    if losing:
        yield finding(
            "crash",
            "Sync the files, and the directory that has their names, before you delete the older "
            f"checkpoint: a power cut after the save lost the newest of {some(writers(losing))}.",
            losing,
        )


def save_everything(study: Study) -> Iterator[Finding]:
    lacking = [
        group for group in resumed_without(study)
        if learns_otherwise(group) and beside_weights([group])
    ]  # fmt: skip
    if lacking:
        yield finding(
            "determinism",
            "Save more than the weights. A resumed training learnt otherwise where this was "
            f"missing: {some(beside_weights(lacking))}.",
            lacking,
        )


def beside_weights(groups: list[Group]) -> list[str]:
    return [part for part in parts_missing(groups) if part != MODEL]


def left_with_nothing(study: Study) -> list[Group]:
    return [
        group for group in measured(study, "crash")
        if group["fault"] == "killed in the save" and group["verdict"] not in KEPT
    ]  # fmt: skip


def write_beside(study: Study) -> Iterator[Finding]:
    losing = left_with_nothing(study)
    if losing:
        yield finding(
            "crash",
            "Never save over the only checkpoint: a kill in the save left nothing with "
            f"{some(writers(losing))}.",
            losing,
        )


def keep_space(study: Study) -> Iterator[Finding]:
    full = [g for g in measured(study, "crash") if g.text("fault").startswith("no space left")]
    unsaid = [group for group in full if group["found"] != 1]
    if unsaid:
        yield finding(
            "crash",
            "Watch the free space: a full disk was no error, a hang or a crash with "
            f"{some(writers(unsaid))}.",
            unsaid,
        )


def checksum(study: Study) -> Iterator[Finding]:
    groups = measured(study, "corruption")
    found = [g for g in groups if g["verdict"] == FOUND and is_ours(g)]
    silent = [g for g in groups if g["verdict"] == SILENT]
    if silent and found:
        yield finding(
            "corruption",
            f"Checksum the data, not only the structure: {plural(len(writers(silent)), 'writer')} "
            "of those measured here load changed numbers.",
            silent,
        )


def publish_last(study: Study) -> Iterator[Finding]:
    losing = left_with_nothing(study)
    removing = [group for group in losing if removed(group)]
    writing = [group for group in losing if written_over(group)]
    if writing:
        told = some(f"{writer(group)} ({written_over(group)})" for group in writing)
        yield finding(
            "crash",
            "Write under another name, sync, then rename: readers and crashes see the old "
            "checkpoint or the new one. Neither was left where a kill came before a write to the "
            f"file named here, and only there: {told}.",
            writing,
        )
    if removing:
        told = some(f"{writer(group)} ({removed(group)})" for group in removing)
        yield finding(
            "crash",
            "Remove the older checkpoint last, when the newer one has its name. Neither was left "
            f"where a kill came before a removal: {told}.",
            removing,
        )
    other = [group for group in losing if group not in removing + writing]
    if other:
        yield finding(
            "crash",
            "Leave the older checkpoint as it is until the newer one can be loaded. Not so with "
            f"{some(writers(other))}; by which calls the rows do not show.",
            other,
        )
    unsynced = [g for g in measured(study, "cost") if g["synced"] == SYNCS_NOTHING]
    if unsynced:
        yield finding(
            "cost",
            "Say whether a save that returned is on the device. With "
            f"{plural(len(writers(unsynced)), 'writer')}, {AS_DECLARED}, all syncing is left to "
            "their users.",
            unsynced,
        )


def lost_before(group: Group) -> list[tuple[str, str]]:
    """Calls that a kill came before and left nothing, and what they are for; empty: not known."""
    calls = (str(one).partition(" ") for one in group.detail().get("lost_before", ()))
    return [(call, path) for call, _, path in calls]


def written_over(group: Group) -> str:
    """The file, where all of these calls write one; else empty."""
    paths = {path if "write" in call else "" for call, path in lost_before(group)}
    return paths.pop() if len(paths) == 1 else ""


def removed(group: Group) -> str:
    """What these calls remove, and what else they change meanwhile; empty: they remove nothing."""
    calls = lost_before(group)
    gone = {top(path) for call, path in calls if call.startswith(REMOVALS)}
    made = {top(path) for call, path in calls} - gone
    beside = f", beside calls for {', '.join(sorted(made))}" if made else ""
    return f"of {', '.join(sorted(gone))}{beside}" if gone else ""


def top(path: str) -> str:
    return path.partition("/")[0]


def snapshot(study: Study) -> Iterator[Finding]:
    mixing = torn(study)
    if mixing:
        yield finding(
            "tearing",
            "A thread that writes live tensors writes several steps into one file: copy first, or "
            f"find out and refuse. Torn: {some(writers(mixing))}.",
            mixing,
        )


def same_bytes(study: Study) -> Iterator[Finding]:
    other = [group for group in measured(study, "formats") if group["reproducible"] is False]
    if other:
        yield finding(
            "formats",
            "Write the same bytes for the same state: then checksums and deduplication can "
            f"compare checkpoints. Other bytes each time: {some(writers(other))}.",
            other,
        )
