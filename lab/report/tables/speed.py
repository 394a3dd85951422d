"""How long it takes: saves, restores, and trainings that save every so many steps."""

from collections.abc import Callable, Sequence

from lab.report.summary import Figure, Group, Study
from lab.report.table import ONE_RUN, Cell, Mood, Table, amount, duration, size
from lab.report.tables.common import WHOSE, framework, listing, matrix, split

RESTART = "process ended"  # the fault of rows that measure a whole restart
EVERYTHING, FILES, SYNCS_NOTHING = "all", "files", "nothing"
SYNCED = {EVERYTHING: "yes", FILES: "files only", SYNCS_NOTHING: "no"}
AS_DECLARED = "as declared in lab/writers/menu.py"
SLOWEST = float("inf")
COST_TIMES = ("stall", "first_stall", "open", "durable", "cpu")
READY = (
    "from the state being there until the first save can be called, once a process; empty where "
    "rows are older than it"
)


def cost(study: Study) -> list[Table]:
    timed = (group for group in study.groups("cost") if group["workload"])
    found = split(timed, "workload")
    return [cost_table(workload, groups) for (workload,), groups in found.items()]


def cost_table(workload: str, groups: list[Group]) -> Table:
    columns = (
        *WHOSE, "Stall", "First stall", "Ready", "Durable", "CPU", "Memory above the state",
        "Writer syncs itself",
    )  # fmt: skip
    notes = (
        "Stall: until the state may change again. Durable: until all is synced; where the writer "
        "leaves that to its user, the sync by the study is in it. Who syncs what is not "
        f"measured, but {AS_DECLARED}.",
        "First stall: of a process's first save. DeepFreeze was prewarmed before it, as its guide "
        f"says; the price of that is in Ready: {READY}. "
        "All else is of the saves after it; the one by which two checkpoints exist for the "
        "first time takes longer than the next ones with many writers: the upper end of brackets.",
    )
    ordered = sorted(groups, key=by("stall_seconds"))
    return listing(title(workload, groups), columns, ordered, of_cost, *notes)


def of_cost(group: Group) -> tuple[Cell, ...]:
    times = (duration(group.figure(f"{name}_seconds")) for name in COST_TIMES)
    mood = Mood.PLAIN if group["synced"] == EVERYTHING else Mood.WARN
    synced = Cell(SYNCED.get(group.text("synced"), ""), mood)
    return *times, amount(group.figure("peak_bytes")), synced


def title(workload: str, groups: Sequence[Group]) -> str:
    bytes_of = next((float(str(group["state_bytes"])) for group in groups if group["state_bytes"]),
                    None)  # fmt: skip
    of_state = "" if bytes_of is None else f", a state of {size(bytes_of)}"
    trained = next((group["parameters"] for group in groups if group["parameters"]), None)
    return workload + of_state + ("" if trained is None else f", {trained:,} parameters")


def by(column: str) -> Callable[[Group], float]:
    """What has no figure comes last."""

    def key(group: Group) -> float:
        figure = group.figure(column)
        return SLOWEST if figure is None else figure.median

    return key


def restore(study: Study) -> list[Table]:
    groups = study.groups("restore")
    plain = split((group for group in groups if group["fault"] != RESTART), "workload")
    whole = split((group for group in groups if group["fault"] == RESTART), "workload")
    return [
        *(restore_table(workload, found) for (workload,), found in plain.items()),
        *(restart_table(workload, found) for (workload,), found in whole.items()),
    ]


def restore_table(workload: str, groups: list[Group]) -> Table:
    columns = (*WHOSE, "Restore", "One tensor", "Memory above the state", "Came back")
    note = "From files that are not in memory, into tensors that are there."
    ordered = sorted(groups, key=by("restore_seconds"))
    return listing(title(workload, groups), columns, ordered, of_restore, note)


def of_restore(group: Group) -> tuple[Cell, ...]:
    same = group["verdict"] == "same bytes"
    verdict = Cell(group.text("verdict"), Mood.GOOD if same else Mood.BAD)
    times = (duration(group.figure(name)) for name in ("restore_seconds", "one_tensor_seconds"))
    return *times, amount(group.figure("peak_bytes")), verdict


def restart_table(workload: str, groups: list[Group]) -> Table:
    columns = (*WHOSE, "First step done", "Of that the restore", "Next loss")
    note = "From the start of the new process, its imports included."
    name, ordered = f"{workload}: a whole restart", sorted(groups, key=framework)
    return listing(name, columns, ordered, of_restart, note)


def of_restart(group: Group) -> tuple[Cell, ...]:
    times = (duration(group.figure(name)) for name in ("first_step_seconds", "restore_seconds"))
    same = group["verdict"] == "the same"
    return *times, Cell(group.text("verdict"), Mood.GOOD if same else Mood.WARN)


def frequency(study: Study) -> list[Table]:
    begun = [group for group in study.groups("frequency") if group["interval"] is not None]
    found = split(begun, "framework", "workload")
    return [frequency_table(key, groups) for key, groups in found.items()]


def frequency_table(key: tuple[str, ...], groups: list[Group]) -> Table:
    saving = [group for group in groups if group["interval"] != 0]
    saving.sort(key=lambda group: -int(str(group["interval"])))
    bare = next((group.figure("step_seconds") for group in saving if group.ok), None)
    note = "How much longer the training takes than without saves"
    step = f"; a step takes {duration(bare).text}" if bare else ""
    name = f"{key[1]} in {framework(groups[0])}"
    return matrix(name, saving, every, longer, f"{note}{step}.")


def every(group: Group) -> str:
    steps = int(str(group["interval"]))
    return "every step" if steps == 1 else f"every {steps} steps"


def longer(group: Group) -> Cell:
    figure = group.figure("run_time_ratio")
    if figure is None:
        return Cell("", Mood.ABSENT)
    return Cell(ratio_text(figure), value=figure.median - 1)


def ratio_text(figure: Figure) -> str:
    """The median, and from least to greatest where there are several."""
    several = f" [{percent(figure.low)}, {percent(figure.high)}]"
    return percent(figure.median) + (several if figure.count > 1 else ONE_RUN)


def percent(ratio: float) -> str:
    """Of a run-time ratio: by how much it is longer."""
    return f"{100 * (ratio - 1):+.0f} %"
