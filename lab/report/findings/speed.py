"""What saving and restoring take: time, space, and what a training loses by it."""

from collections.abc import Iterator, Sequence
from statistics import median as middle

from lab.report.findings.common import Finding, finding, measured, median, mixing, plural, some
from lab.report.summary import Group, Study
from lab.report.table import seconds, size, three
from lab.report.tables.common import framework, is_ours, is_simulated, split, writer
from lab.report.tables.files import bytes_of
from lab.report.tables.ranks import NAMES, NOTHING
from lab.report.tables.speed import AS_DECLARED, RESTART, SYNCS_NOTHING, by, percent
from lab.simulation.machine import read_machine

OUR_DEFAULTS = ("df", "df-tensorflow", "df-chainer", "df-jax")
OUR_DEFAULT_IN_TRAINING = "df-default"
SAME_BYTES = "same bytes"
# Writers that are measured with their compression, and without it.
PACKED = (("chainer", "chainer-stored"), ("chainer-hdf5", "chainer-hdf5-stored"))
OFF = 0  # the interval of a training that saves nothing


def cost(study: Study) -> Iterator[Finding]:
    writers_that_mix = {group["writer"] for group in mixing(study)}
    found = [g for g in measured(study, "cost") if g["writer"] not in writers_that_mix]
    for (workload,), groups in split(found, "workload").items():
        for column, what in (
            ("stall_seconds", "How long a save holds the training up"),
            ("durable_seconds", "How long until a checkpoint would survive a power cut"),
        ):
            yield from beside(groups, column, what, workload)
    passed = [g for g in measured(study, "cost") if g["writer"] in writers_that_mix]
    if passed:
        yield finding(
            "cost",
            "Not counted there, for their snapshots mix steps: "
            f"{some(dict.fromkeys(map(writer, passed)))}.",
            [*passed, *mixing(study)],
        )
    if found and not measured(study, "tearing"):
        yield finding(
            "cost",
            "Some of the writers compared there may mix steps: `tearing` was not run.",
            found,
        )
    yield from unsynced(measured(study, "cost"))


def unsynced(groups: list[Group]) -> Iterator[Finding]:
    """By their label: whether they sync is not measured here."""
    leaving = [group for group in groups if group["synced"] == SYNCS_NOTHING]
    if leaving:
        names = {writer(group) for group in leaving}
        yield finding(
            "cost",
            f"{len(names)} of {len(set(map(writer, groups)))} writers sync nothing that they "
            f"wrote, {AS_DECLARED}: whether and when it is on the device is left to chance, or "
            f"to their user: {some(sorted(names))}.",
            [*leaving, *groups],
        )


def beside(groups: Sequence[Group], column: str, what: str, workload: str) -> Iterator[Finding]:
    """In each framework DeepFreeze as it comes there, and the best of the others."""
    pairs = list(rivals(groups, column))
    if not pairs:
        return
    state = size(median(pairs[0][0], "state_bytes"))
    told = "; ".join(
        f"{framework(ours)} {seconds(median(ours, column))} with DeepFreeze, "
        f"{seconds(median(best, column))} with {writer(best)} "
        f"({times(median(best, column) / median(ours, column))})"
        for ours, best in pairs
    )
    used = [group for pair in pairs for group in pair]
    yield finding(
        str(pairs[0][0]["experiment"]),
        f"{what} (state of {state}, {workload}; DeepFreeze and the best other writer of each "
        f"framework): {told}.",
        used,
    )


def rivals(groups: Sequence[Group], column: str) -> Iterator[tuple[Group, Group]]:
    for found in split(groups, "framework").values():
        ours = [group for group in found if group["writer"] in OUR_DEFAULTS]
        others = sorted((group for group in found if not is_ours(group)), key=by(column))
        if ours and others and ours[0].figure(column) is not None:
            yield ours[0], others[0]


def times(ratio: float) -> str:
    if ratio >= 1:
        return f"{ratio:.3g} times as long"
    return f"{ratio:.2g} of that"


def compression(study: Study) -> Iterator[Finding]:
    for (workload,), groups in split(measured(study, "cost"), "workload").items():
        found = {group.text("writer"): group for group in groups if file_bytes(group)}
        pairs = [(found[one], found[other]) for one, other in PACKED if {one, other} <= set(found)]
        if pairs:
            told = "; ".join(packing(*pair) for pair in pairs)
            yield finding(
                "cost",
                f"Compressed beside uncompressed ({workload}, random numbers in place of trained "
                f"ones): {told}.",
                [group for pair in pairs for group in pair],
            )


def file_bytes(group: Group) -> float:
    return float(group.detail().get("file_bytes") or 0)


def packing(packed: Group, plain: Group) -> str:
    spent, plainly = (median(group, "durable_seconds") for group in (packed, plain))
    return (
        f"{writer(packed)} takes {three(spent / plainly)} times as long until it is durable "
        f"({seconds(spent)}, not {seconds(plainly)}) as {writer(plain)}, for "
        f"{100 * file_bytes(packed) / file_bytes(plain):.3g} % of its size "
        f"({size(file_bytes(packed))}, not {size(file_bytes(plain))})"
    )


def formats(study: Study) -> Iterator[Finding]:
    for (workload,), groups in split(measured(study, "formats"), "workload").items():
        ordered = sorted(groups, key=disk_bytes)
        state = median(ordered[0], "state_bytes")
        least, most = ordered[0], ordered[-1]
        yield finding(
            "formats",
            f"The same state of {size(state)} ({workload}) takes from "
            f"{size(disk_bytes(least))} ({writer(least)}, {least['container']}) to "
            f"{size(disk_bytes(most))} ({writer(most)}, {most['container']}) on disk.",
            [least, most, *groups],
        )
        twice = [group for group in groups if group["reproducible"] is not None]
        other = [group for group in twice if not group["reproducible"]]
        if not twice:
            continue
        yield finding(
            "formats",
            f"{len(twice) - len(other)} of {len(twice)} writers give the same bytes for the "
            f"same state in two processes ({workload})"
            + (f"; other bytes: {some(map(writer, other))}." if other else "."),
            [*other, *twice],
        )


def disk_bytes(group: Group) -> float:
    found = bytes_of(group)
    return found.median if found else float("inf")


def frequency(study: Study) -> Iterator[Finding]:
    found = split(measured(study, "frequency"), "framework", "workload")
    for (_, workload), groups in found.items():
        saving = [group for group in groups if group["interval"] == 1]
        ours = [group for group in saving if group["writer"] == OUR_DEFAULT_IN_TRAINING]
        others = sorted((g for g in saving if not is_ours(g)), key=by("run_time_ratio"))
        if not ours or not others:
            continue
        best, last = others[0], others[-1]
        off = [group for group in groups if group["interval"] == OFF]
        ratios = [ratio for group in off if (ratio := group.figure("run_time_ratio"))]
        noise = max((max(one.high - 1, 1 - one.low) for one in ratios), default=0.0)
        yield finding(
            "frequency",
            f"Saving after every step changes the run time of {workload} in "
            f"{framework(ours[0])} by {longer(ours[0])} with {writer(ours[0])}, {longer(best)} "
            f"with {writer(best)}"
            + (f", {longer(last)} with {writer(last)}" if last is not best else "")
            + f"; two trainings without saves are up to {100 * noise:.0f} % off their median.",
            [ours[0], best, last, *others, *off],
        )


TIERED = ("df-tier", "df-agent")


def levels(study: Study) -> Iterator[Finding]:
    """The run time that a second tier adds, and that an agent adds to it."""
    found = split(measured(study, "frequency"), "framework", "workload", "interval")
    for (_, workload, interval), groups in found.items():
        there = {group.text("writer"): group for group in groups}
        one = there.get(OUR_DEFAULT_IN_TRAINING)
        more = [there[name] for name in TIERED if name in there]
        if one is None or not more:
            continue
        alone = median(one, "run_time_ratio")
        told = ", ".join(
            f"{three(median(group, 'run_time_ratio') / alone)} times with {writer(group)}"
            for group in more
        )
        yield finding(
            "frequency",
            f"Multi-level persistence ({workload} in {framework(one)}, interval {interval}): run "
            f"time over that with one tier: {told}.",
            [one, *more],
        )


def longer(group: Group) -> str:
    """Noise can make it less than nothing."""
    return percent(median(group, "run_time_ratio"))


def scale(study: Study) -> Iterator[Finding]:
    groups = [g for g in measured(study, "scale") if not is_simulated(g) and g["ranks"]]
    saving = [group for group in groups if group["strategy"] != NOTHING]
    for key, found in split(saving, "framework", "workload", "scaling").items():
        most = max(int(str(group["ranks"])) for group in found)
        there = {str(g["strategy"]): g for g in found if g["ranks"] == most}
        ours = there.pop("deepfreeze", None)
        if ours is None or not there:
            continue
        told = ", ".join(f"{seconds(median(group, 'stall_seconds'))} with {writer(group)}"
                         for group in there.values())  # fmt: skip
        yield finding(
            "scale",
            f"{plural(most, 'rank')} in {framework(ours)} ({key[1]}, {key[2]} scaling): the "
            f"slowest rank is held up for {seconds(median(ours, 'stall_seconds'))} with "
            f"DeepFreeze; {told}.",
            (ours, *there.values()),
        )


def simulated(study: Study) -> Iterator[Finding]:
    groups = [group for group in measured(study, "scale") if is_simulated(group)]
    errors = [group for group in groups if group["quantity"] and group["ranks"]]
    if errors:
        told = "; ".join(
            f"{NAMES[name]} {signed_errors(found)}"
            for (name,), found in split(errors, "strategy").items()
        )
        frameworks = ", ".join(dict.fromkeys(map(framework, errors)))
        yield finding(
            "scale",
            f"SIMULATED less measured, over measured ({frameworks}, ranks that share the cores and "
            f"the disk of this machine; no network, no parallel file system): {told}.",
            errors,
        )
    nodes = {int(str(group["nodes"])) for group in groups if group["nodes"]}
    last = [group for group in groups if nodes and group["nodes"] == max(nodes)]
    if last:
        told = "; ".join(f"{NAMES[str(g['strategy'])]} {seconds(median(g, 'stall_seconds'))}"
                         for g in last)  # fmt: skip
        call = read_machine().parameters["call_seconds"].value
        yield finding(
            "scale",
            f"SIMULATED, {max(nodes):,} nodes of a Theta-like machine: the longest stall of a "
            f"rank in a save of NT3 is: {told}. Most of its bandwidths are assumed, and so are the "
            f"{seconds(call)} of DeepFreeze's own call, which are put in. DeepFreeze writes to "
            "the nodes' own SSDs and flushes from there, which is its design, not yet its code; "
            "the others write to the parallel file system.",
            last,
        )


def signed_errors(groups: list[Group]) -> str:
    found = sorted(median(group, "prediction_error") for group in groups)
    low, half, high = (f"{100 * one:+.0f} %" for one in (found[0], middle(found), found[-1]))
    return f"{half} in the median, from {low} to {high}"


def restore(study: Study) -> Iterator[Finding]:
    groups = measured(study, "restore")
    plain = [group for group in groups if group["fault"] != RESTART]
    right = [group for group in plain if group["verdict"] == SAME_BYTES]
    for (workload,), found in split(right, "workload").items():
        yield from beside(
            found, "restore_seconds", "How long a restore from cold files takes", workload
        )
    other = [group for group in plain if group["verdict"] != SAME_BYTES]
    if plain:
        yield finding(
            "restore",
            f"{len(plain) - len(other)} of {len(plain)} restores gave the bytes that were saved, "
            "while the state went on to change"
            + (f"; other bytes came back from {some(map(writer, other))}." if other else "."),
            [*other, *plain],
        )
