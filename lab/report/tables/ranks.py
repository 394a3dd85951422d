"""Several ranks: measured here, and simulated beyond."""

from collections.abc import Callable, Sequence

from lab.report.summary import Group, Study
from lab.report.table import Cell, Line, Mood, Table, duration, predicted, seconds, size, words
from lab.report.tables.common import (
    DEEPFREEZE,
    failures,
    framework,
    is_simulated,
    shown,
    split,
    writer,
)
from lab.report.tables.speed import ratio_text

NAMES = {
    "none": "no saves", "rank0": "rank 0 writes", "all-write": "all write",
    "asynchronous": "asynchronous", "sharded": "sharded", DEEPFREEZE: "DeepFreeze",
}  # fmt: skip
NOTHING = "none"  # the strategy of trainings that save nothing
NODES_NOTE = "Simulated, not measured: the machine is in lab/simulation/machines/theta-like.json."
LOCAL_NOTE = (
    "DeepFreeze writes to the nodes' own SSDs first: that survives processes, not nodes. The flush "
    "from there is its design, not yet its code."
)
JITTER_NOTE = "At the worst collective until the next save: steps differ by themselves, too."
INTERVAL_NOTE = (
    "By what a save adds to the run time: where only one rank is held up, and shortly, as in "
    "'asynchronous', that hides behind another rank's slow step, and is free."
)


def scale(study: Study) -> list[Table]:
    groups = study.groups("scale")
    real = [group for group in groups if not is_simulated(group) and group["scaling"]]
    model = [
        group for group in groups if is_simulated(group) and group["quantity"] and group["ranks"]
    ]
    curves = [group for group in groups if is_simulated(group) and group["nodes"]]
    found = [measured(key, some) for key, some in split(real, "framework", "workload",
                                                        "scaling").items()]  # fmt: skip
    return [table for pair in found for table in pair] + errors(model) + nodes(curves)


def measured(key: tuple[str, ...], groups: list[Group]) -> tuple[Table, Table]:
    saving = [group for group in groups if group["strategy"] != NOTHING]
    note = (
        "The stall of the slowest rank, and how much longer the training takes than without saves."
    )
    name = f"{framework(groups[0])}, {key[1]}, {key[2]} scaling"
    return (
        table(name, saving, "ranks", stall_and_run_time,
              (note, writers_of(saving), *failures(saving, strategy))),
        table(f"{name}: the slowest rank's stall less the median one's", saving, "ranks",
              lambda one: duration(one.figure("straggler_seconds")), ()),
    )  # fmt: skip


def writers_of(groups: list[Group]) -> str:
    """Strategies are not alike in all else: some compress, some mix steps, few sync."""
    told = dict.fromkeys(
        f"{NAMES.get(group.text('strategy'), '')}: {writer(group)} "
        f"(syncs {group.text('synced') or 'nothing'})"
        for group in groups
    )
    return f"Here {'. '.join(told)}."


def table(
    title: str,
    groups: Sequence[Group],
    column: str,
    cell: Callable[[Group], Cell],
    notes: tuple[str, ...],
    simulated: bool = False,
) -> Table:
    """A line for each strategy, a column for each number of ranks or nodes."""
    counts = sorted({int(str(group[column])) for group in groups if group[column]})
    lines = []
    for name, some in in_order(groups):
        by_count = {int(str(group[column])): group for group in some if group[column]}
        cells = (shown(by_count.get(count), cell) for count in counts)
        lines.append(Line((*words(NAMES.get(name, name)), *cells), name == DEEPFREEZE))
    heads = (f"{count:,} {column if count > 1 else column.removesuffix('s')}" for count in counts)
    return Table(title, ("Strategy", *heads), tuple(lines), notes, simulated)


def in_order(groups: Sequence[Group]) -> list[tuple[str, list[Group]]]:
    """By strategy, always in the same order, whatever the order in which they were measured."""
    found = {name: some for (name,), some in split(groups, "strategy").items()}
    return [(name, found[name]) for name in NAMES if name in found]


def strategy(group: Group) -> str:
    name = group.text("strategy")
    ranks = f" with {group['ranks']} ranks" if group["ranks"] else ""
    return f"{framework(group)}, {NAMES.get(name, name)}{ranks}"


def stall_and_run_time(group: Group) -> Cell:
    stall, ratio = group.figure("stall_seconds"), group.figure("run_time_ratio")
    if stall is None or ratio is None:
        return Cell("", Mood.ABSENT)
    if stall.count == 1:
        return Cell(f"{seconds(stall.median)}; {ratio_text(ratio)}", value=stall.median)
    return Cell(f"{duration(stall).text}; {ratio_text(ratio)}", value=stall.median)


def errors(groups: list[Group]) -> list[Table]:
    """Of the model, where it can be held against a measurement."""
    found = split(groups, "framework", "quantity")
    note = (
        "How much more (+) or less (-) the model says than was measured. It is given what one rank "
        "took, and has cores for each rank; here all ranks share the machine's. Its asynchronous "
        "rank 0 copies and writes all; the one measured, dcp.async_save, has every rank do a part."
    )
    return [
        table(f"The model's error, {framework(some[0])}: {what(key[1])}", some, "ranks", error,
              (note,), simulated=True)
        for key, some in found.items()
    ]  # fmt: skip


def what(quantity: str) -> str:
    return {"stall_seconds": "stall", "durable_seconds": "time to durable"}.get(quantity, quantity)


def error(group: Group) -> Cell:
    figure = group.figure("prediction_error")
    return Cell("", Mood.ABSENT) if figure is None else Cell(f"{100 * figure.median:+.0f} %")


def nodes(groups: list[Group]) -> list[Table]:
    if not groups:
        return []
    asked: tuple[tuple[str, Callable[[Group], Cell], tuple[str, ...]], ...] = (
        ("longest stall of a rank", lambda one: predicted(one.figure("stall_seconds")), ()),
        ("time to durable, where it is written first",
         lambda one: predicted(one.figure("durable_seconds")), (LOCAL_NOTE,)),
        ("time to durable on the parallel file system", durable_on_parallel, ()),
        ("slowest rank less the median",
         lambda one: predicted(one.figure("straggler_seconds")), (JITTER_NOTE,)),
        ("greatest load of the parallel file system", load, ()),
        ("best interval for the job's failures",
         lambda one: predicted(one.figure("best_interval_seconds")), (INTERVAL_NOTE,)),
    )  # fmt: skip
    return [
        table(f"NT3 on a Theta-like machine: {name}", groups, "nodes", cell,
              (NODES_NOTE, *notes), simulated=True)
        for name, cell, notes in asked
    ]  # fmt: skip


def durable_on_parallel(group: Group) -> Cell:
    value = group.detail().get("durable_parallel_seconds")
    return Cell("", Mood.ABSENT) if value is None else Cell(seconds(value), value=value)


def load(group: Group) -> Cell:
    figure = group.figure("file_system_load")
    return Cell("", Mood.ABSENT) if figure is None else Cell(f"{size(figure.median)}/s")
