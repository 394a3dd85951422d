"""What to do about it. Each advice is given only where rows show the need, and names them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from study.report.findings.common import Finding, finding, measured, median, plural, some, torn
from study.report.summary import Group, Study
from study.report.table import seconds
from study.report.tables.common import is_ours, writer
from study.report.tables.faults import FOUND, KEPT, SILENT
from study.report.tables.restarts import SAME
from study.report.tables.speed import EVERYTHING

FOR_USERS, FOR_DEVELOPERS = "for users", "for framework developers"
LONG_SECONDS = 0.1  # a stall that is worth a word


def takeaways(study: Study) -> dict[str, list[Finding]]:
    users: tuple[Callable[[Study], Iterator[Finding]], ...] = (
        check_yourself, sync_yourself, save_everything, write_beside, keep_space,
    )  # fmt: skip
    developers: tuple[Callable[[Study], Iterator[Finding]], ...] = (
        checksum, publish_last, copy_behind, snapshot, same_bytes,
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
        group for group in measured(study, "determinism")
        if group["missing"] and group["verdict"] != SAME
    ]  # fmt: skip
    if lacking:
        parts = dict.fromkeys(part for g in lacking for part in g.text("missing").split(", "))
        yield finding(
            "determinism",
            "Save more than the weights. A resumed training became another one where this was "
            f"missing: {some(parts)}.",
            lacking,
        )


def write_beside(study: Study) -> Iterator[Finding]:
    losing = [
        group for group in measured(study, "crash")
        if group["fault"] == "killed in the save" and group["verdict"] not in KEPT
    ]  # fmt: skip
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
    losing = [g for g in measured(study, "crash") if g["verdict"] not in KEPT
              and g["fault"] == "killed in the save"]  # fmt: skip
    if losing:
        yield finding(
            "crash",
            "Write under another name, sync, then rename: readers and crashes see the old "
            f"checkpoint or the new one. Not so with {some(writers(losing))}.",
            losing,
        )
    unsynced = [g for g in measured(study, "cost") if g["synced"] != EVERYTHING]
    if unsynced:
        yield finding(
            "cost",
            "Say whether a save that returned is on the device: "
            f"{plural(len(writers(unsynced)), 'writer')} leave syncing to their users.",
            unsynced,
        )


def copy_behind(study: Study) -> Iterator[Finding]:
    groups = measured(study, "cost")
    long = [g for g in groups if not is_ours(g) and median(g, "stall_seconds") > LONG_SECONDS]
    ours = [group for group in groups if is_ours(group)]
    worst = max((median(group, "stall_seconds") for group in ours), default=LONG_SECONDS)
    if long and worst < LONG_SECONDS:
        yield finding(
            "cost",
            "Copy behind the training and wait at the next update, not in the save: that takes "
            f"at most {seconds(worst)} with {some(writers(ours))}, and over "
            f"{seconds(LONG_SECONDS)} with {plural(len(writers(long)), 'other writer')}.",
            (*ours, *long),
        )


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
    other = [group for group in measured(study, "formats") if not group["reproducible"]]
    if other:
        yield finding(
            "formats",
            "Write the same bytes for the same state: then checksums and deduplication can "
            f"compare checkpoints. Other bytes each time: {some(writers(other))}.",
            other,
        )
