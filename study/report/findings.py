"""What the rows say, in sentences; each names the measurements that it rests on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from study.report.compare import named
from study.report.summary import Group, Study
from study.report.table import seconds, size
from study.report.tables.common import framework, is_ours, is_simulated, split, writer
from study.report.tables.faults import FOUND, KEPT, REFUSED_WELL, SILENT
from study.report.tables.files import bytes_of
from study.report.tables.ranks import NAMES, NOTHING
from study.report.tables.restarts import SAME
from study.report.tables.speed import EVERYTHING, RESTART, by, percent

NAMED_MAX = 6  # writers in one sentence
OUR_DEFAULTS = ("df", "df-tensorflow", "df-chainer", "df-jax")


@dataclass(frozen=True)
class Finding:
    theme: str  # an experiment's name
    sentence: str
    rows: tuple[str, ...]  # the measurements that it rests on


def finding(theme: str, sentence: str, groups: Iterable[Group]) -> Finding:
    return Finding(theme, sentence, tuple(dict.fromkeys(map(named, groups))))


def findings(study: Study) -> list[Finding]:
    """In the order of the report; nothing is said of what was not measured."""
    makers: tuple[Callable[[Study], Iterator[Finding]], ...] = (
        cost, formats, frequency, scale, simulated, determinism, crash, corruption, sdc, restore,
        portability, tearing,
    )  # fmt: skip
    return [found for maker in makers for found in maker(study)]


def measured(study: Study, experiment: str) -> list[Group]:
    """What went well, of whole writers: `cost` also has a row about the machine."""
    return [
        group for group in study.groups(experiment)
        if group.ok and (group["workload"] or experiment != "cost")
    ]  # fmt: skip


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


def cost(study: Study) -> Iterator[Finding]:
    mixing = {group["writer"] for group in torn(study)}
    found = [group for group in measured(study, "cost") if group["writer"] not in mixing]
    for (workload,), groups in split(found, "workload").items():
        for column, what in (
            ("stall_seconds", "How long a save holds the training up"),
            ("durable_seconds", "How long until a checkpoint would survive a power cut"),
        ):
            yield from beside(groups, column, what, workload)
    if mixing:
        yield finding(
            "cost",
            "Not counted there, for their snapshots mix steps: "
            f"{some(dict.fromkeys(map(writer, torn(study))))}.",
            torn(study),
        )
    leaving = [g for g in measured(study, "cost") if g["synced"] != EVERYTHING]
    writers = {writer(group) for group in measured(study, "cost")}
    if leaving:
        names = {writer(group) for group in leaving}
        yield finding(
            "cost",
            f"{len(names)} of {len(writers)} writers return before all that they wrote is on the "
            f"device, and leave that to chance or to their user: {some(sorted(names))}.",
            leaving,
        )


def torn(study: Study) -> list[Group]:
    return [group for group in measured(study, "tearing") if group["verdict"] == "torn"]


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
            (least, most),
        )
        other = [group for group in groups if not group["reproducible"]]
        yield finding(
            "formats",
            f"{len(groups) - len(other)} of {len(groups)} writers give the same bytes for the "
            f"same state in two processes ({workload})"
            + (f"; other bytes: {some(map(writer, other))}." if other else "."),
            other or groups,
        )


def disk_bytes(group: Group) -> float:
    found = bytes_of(group)
    return found.median if found else float("inf")


def frequency(study: Study) -> Iterator[Finding]:
    found = split(measured(study, "frequency"), "framework", "workload")
    for (_, workload), groups in found.items():
        saving = [group for group in groups if group["interval"] == 1]
        ours = sorted((g for g in saving if is_ours(g)), key=by("run_time_ratio"))
        others = sorted((g for g in saving if not is_ours(g)), key=by("run_time_ratio"))
        if not ours or not others:
            continue
        best, last = others[0], others[-1]
        yield finding(
            "frequency",
            f"Saving after every step changes the run time of {workload} in "
            f"{framework(ours[0])} by {longer(ours[0])} with {writer(ours[0])}, {longer(best)} "
            f"with {writer(best)}"
            + (f", {longer(last)} with {writer(last)}." if last is not best else "."),
            (ours[0], best, last),
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
        told = ", ".join(f"{NAMES[name]} {seconds(median(group, 'stall_seconds'))}"
                         for name, group in there.items())  # fmt: skip
        yield finding(
            "scale",
            f"{plural(most, 'rank')} in {framework(ours)} ({key[1]}, {key[2]} scaling): the "
            f"slowest rank is held up for {seconds(median(ours, 'stall_seconds'))} with "
            f"DeepFreeze; {told}.",
            (ours, *there.values()),
        )


def simulated(study: Study) -> Iterator[Finding]:
    groups = [group for group in measured(study, "scale") if is_simulated(group)]
    errors = [group for group in groups if group["quantity"]]
    if errors:
        sizes = sorted(abs(median(group, "prediction_error")) for group in errors)
        yield finding(
            "scale",
            f"SIMULATED against measured, on this machine: the model is off by "
            f"{100 * sizes[len(sizes) // 2]:.0f} % in the median and {100 * sizes[-1]:.0f} % at "
            f"worst, over {plural(len(sizes), 'comparison')}.",
            errors,
        )
    nodes = {int(str(group["nodes"])) for group in groups if group["nodes"]}
    last = [group for group in groups if nodes and group["nodes"] == max(nodes)]
    if last:
        told = "; ".join(f"{NAMES[str(g['strategy'])]} {seconds(median(g, 'stall_seconds'))}"
                         for g in last)  # fmt: skip
        yield finding(
            "scale",
            f"SIMULATED, {max(nodes):,} nodes of a Theta-like machine: the longest stall of a rank "
            f"in a save of NT3 is: {told}.",
            last,
        )


def determinism(study: Study) -> Iterator[Finding]:
    groups = [group for group in measured(study, "determinism") if group["writer"] != "none"]
    whole = resumed_whole(study)
    for ours, name in ((True, "DeepFreeze"), (False, "the other writers")):
        found = [group for group in whole if is_ours(group) == ours]
        same = [group for group in found if group["verdict"] == SAME]
        if found:
            yield finding(
                "determinism",
                f"Where all parts of the state came back, {len(same)} of {len(found)} trainings "
                f"that were killed and resumed with {name} end bit for bit as the undisturbed one.",
                found,
            )
    lacking = [group for group in groups if group["missing"]]
    other = [group for group in lacking if group["verdict"] != SAME]
    if lacking:
        yield finding(
            "determinism",
            f"Without a part of the state (generators, place in the data, schedule, optimizer) "
            f"{len(other)} of {len(lacking)} resumed trainings end otherwise.",
            lacking,
        )


def resumed_whole(study: Study) -> list[Group]:
    """Restarts in which all parts of the state came back, and nothing else had changed."""
    return [
        group for group in measured(study, "determinism")
        if group["writer"] != "none" and not group["missing"]
        and group["fault"] in ("killed", "killed in a save")
    ]  # fmt: skip


def crash(study: Study) -> Iterator[Finding]:
    groups = measured(study, "crash")
    for start, good, what in (
        ("power cut after the save", KEPT[:1], "still have the newest checkpoint when the power "
         "fails after their save has said that it is done"),
        ("killed in the save", KEPT, "still have a checkpoint when they are killed in a save"),
        ("no space left", (REFUSED_WELL,), "refuse a save without space by an error, keep the "
         "older checkpoint and save again later"),
    ):  # fmt: skip
        found = [group for group in groups if group.text("fault").startswith(start)]
        yield from verdicts("crash", found, good, what)


def verdicts(theme: str, groups: list[Group], good: Sequence[str], what: str) -> Iterator[Finding]:
    """How many writers do well in each of their rows, and which do not."""
    bad = [group for group in groups if group["verdict"] not in good]
    names = dict.fromkeys(map(writer, groups))
    poor = dict.fromkeys(map(writer, bad))
    if names:
        rest = f"; these do not: {some(poor)}" if poor else ""
        count = f"{len(names) - len(poor)} of {len(names)} writers"
        yield finding(theme, f"{count} {what}{rest}.", bad or groups)


def corruption(study: Study) -> Iterator[Finding]:
    what = "notice every kind of damage that was done to their files, or come to no harm by it"
    yield from verdicts("corruption", measured(study, "corruption"), (FOUND, "harmless"), what)


def sdc(study: Study) -> Iterator[Finding]:
    groups = measured(study, "sdc")
    training = [group for group in groups if not group["writer"]]
    lost = [group for group in training if group["verdict"] == "lost"]
    if training:
        where = some(f"{g['component']}, {g['bits']}, {g['flips']} at once" for g in lost)
        yield finding(
            "sdc",
            f"Flipped bits ruin the training in {len(lost)} of {len(training)} classes"
            + (f": {where}." if lost else "."),
            lost or training,
        )
    files = [group for group in groups if group["writer"]]
    yield from verdicts("sdc", files, ("told",), "tell of one flipped bit, wherever it is")
    silent = [group for group in files if group["verdict"] == SILENT]
    if lost and silent:
        yield finding(
            "sdc",
            "So a flip that ruins a training goes unnoticed with "
            f"{plural(len(set(map(writer, silent))), 'writer')}.",
            silent,
        )


def restore(study: Study) -> Iterator[Finding]:
    groups = measured(study, "restore")
    plain = [group for group in groups if group["fault"] != RESTART]
    for (workload,), found in split(plain, "workload").items():
        yield from beside(
            found, "restore_seconds", "How long a restore from cold files takes", workload
        )
    other = [group for group in plain if group["verdict"] != "same bytes"]
    if plain:
        yield finding(
            "restore",
            f"{len(plain) - len(other)} of {len(plain)} restores gave the bytes that were saved, "
            "while the state went on to change"
            + (f"; other bytes came back from {some(map(writer, other))}." if other else "."),
            other or plain,
        )


def portability(study: Study) -> Iterator[Finding]:
    groups = measured(study, "portability")
    equal = [group for group in groups if group["verdict"] == "equal outputs"]
    if groups:
        yield finding(
            "portability",
            f"{len(equal)} of {len(groups)} ways from one framework into another give the same "
            "outputs.",
            groups,
        )


def tearing(study: Study) -> Iterator[Finding]:
    what = (
        "give a snapshot of one step, or refuse, where the state goes on to change as soon as "
        "they allow that"
    )
    good = ("consistent", "refused")
    yield from verdicts("tearing", measured(study, "tearing"), good, what)
