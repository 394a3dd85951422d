"""One measurement: a flat dict of JSON values, each in a column that is described here."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

Value = str | int | float | bool | None
Row = dict[str, Value]

OK = "ok"
FAILED = "failed"
NOT_INSTALLED = "not installed"
LEFT_OUT = "left out"  # this machine lacks what it needs
NO_SPACE = "no space"
TIMED_OUT = "timed out"
STATUSES = (OK, FAILED, NOT_INSTALLED, LEFT_OUT, NO_SPACE, TIMED_OUT)


class Kind(Enum):
    """What may differ between two runs with the same seed on the same machine."""

    NAME = "name"  # what was measured: rows with the same names are compared
    EXACT = "exact"  # nothing
    MEASURED = "measured"  # within the spread
    NOTE = "note"  # anything


@dataclass(frozen=True)
class Column:
    kind: Kind
    meaning: str


COLUMNS: Mapping[str, Column] = {
    "experiment": Column(Kind.NAME, "one of `deepfreeze study --list`"),
    "case": Column(Kind.NOTE, "what was run in one go; unique within the experiment"),
    "rows": Column(Kind.NOTE, "how many rows that case has: fewer were interrupted"),
    "repetition": Column(Kind.NOTE, "of the same measurement, from 0"),
    "seed": Column(Kind.NOTE, "of contents, orders, places and moments"),
    "framework": Column(Kind.NAME, "pytorch, tensorflow, chainer, jax; empty: of none"),
    "workload": Column(Kind.NAME, "whose state it is"),
    "writer": Column(Kind.NAME, "how it is saved; `none`: not at all"),
    "title": Column(Kind.NOTE, "that writer in words"),
    "versions": Column(Kind.NOTE, "of DeepFreeze, its framework and that one's libraries"),
    "ranks": Column(Kind.NAME, "processes of one data-parallel training"),
    "strategy": Column(Kind.NAME, "rank 0 writes, all write, asynchronous, deepfreeze"),
    "scaling": Column(Kind.NAME, "strong: one batch shared by all ranks; weak: one each"),
    "interval": Column(Kind.NAME, "steps from one save to the next; 0: none"),
    "fault": Column(Kind.NAME, "what was done to the checkpoint, or to who writes it"),
    "component": Column(Kind.NAME, "the part of the state: model, optimizer, rng, data"),
    "saved": Column(Kind.NAME, "which parts of the state the checkpoint had"),
    "bits": Column(Kind.NAME, "which bits of a float32 were flipped, 0 the lowest"),
    "flips": Column(Kind.NAME, "how many at once"),
    "reader": Column(Kind.NAME, "who loads what `writer` saved"),
    "nodes": Column(Kind.NAME, "of the simulated machine"),
    "quantity": Column(Kind.NAME, "that the model predicts"),
    "simulated": Column(Kind.NAME, "true: by the model, never measured"),
    "status": Column(Kind.EXACT, ", ".join(STATUSES)),
    "verdict": Column(Kind.EXACT, "of an experiment that has one, in its own words"),
    "parameters": Column(Kind.NOTE, "trained numbers of `workload`; older rows have none"),
    "tensors": Column(Kind.EXACT, "of the state"),
    "state_bytes": Column(Kind.EXACT, "of all tensors of the state"),
    "file_bytes": Column(Kind.EXACT, "of all files of one checkpoint"),
    "files": Column(Kind.EXACT, "of one checkpoint"),
    "trials": Column(Kind.EXACT, "faults that were tried"),
    "found": Column(Kind.EXACT, "the load failed, or took an older one and said so"),
    "silent": Column(Kind.EXACT, "other numbers were loaded without a word"),
    "harmless": Column(Kind.EXACT, "what was loaded is what was saved"),
    "crashed": Column(Kind.EXACT, "the process that loaded or saved died or hung"),
    "usable": Column(Kind.EXACT, "a whole checkpoint could be loaded after the fault"),
    "lost": Column(Kind.EXACT, "none could, or what was acknowledged could not"),
    "mixed": Column(Kind.EXACT, "the load gave a state that never was"),
    "container": Column(Kind.EXACT, "what the files are, by their first bytes"),
    "reproducible": Column(Kind.EXACT, "whether the same state gives the same bytes again"),
    "synced": Column(Kind.EXACT, "by the writer itself: all, files, nothing"),
    "checked": Column(Kind.EXACT, "what a load compares; empty: nothing"),
    "first_step": Column(Kind.EXACT, "the first step that differs from the undisturbed run"),
    "first_entry": Column(Kind.EXACT, "the first entry that differs there"),
    "missing": Column(Kind.EXACT, "the parts of the state that did not come back"),
    "nan": Column(Kind.EXACT, "trials whose loss ended as NaN or infinite"),
    "loss_change": Column(Kind.EXACT, "the greatest change of the last loss, absolute"),
    "stall_seconds": Column(Kind.MEASURED, "from the call until the state may change"),
    "first_stall_seconds": Column(Kind.MEASURED, "the same, of a process's first save"),
    "open_seconds": Column(Kind.MEASURED, "until the writer is ready; DeepFreeze's: prewarmed"),
    "committed_seconds": Column(Kind.MEASURED, "from the call until the writer says so"),
    "durable_seconds": Column(Kind.MEASURED, "from the call until all is synced"),
    "restore_seconds": Column(Kind.MEASURED, "into the live state, files not in memory"),
    "one_tensor_seconds": Column(Kind.MEASURED, "one of at most 16 MB, cold"),
    "first_step_seconds": Column(Kind.MEASURED, "from process start to the first step done"),
    "cpu_seconds": Column(Kind.MEASURED, "of one save, children included"),
    "peak_bytes": Column(Kind.MEASURED, "of memory above the process with its state"),
    "varying_bytes": Column(Kind.MEASURED, "`file_bytes` of a writer that never has the same"),
    "written_bytes": Column(Kind.MEASURED, "that the kernel counts for one save"),
    "step_seconds": Column(Kind.MEASURED, "of one training step without saves, median"),
    "run_time_ratio": Column(Kind.MEASURED, "over the same steps without saves"),
    "straggler_seconds": Column(Kind.MEASURED, "the slowest rank's stall less the median"),
    "imbalance": Column(Kind.MEASURED, "most bytes of a rank over the mean"),
    "best_interval_seconds": Column(Kind.MEASURED, "Young/Daly's, for `mtbf_seconds`"),
    "prediction_error": Column(Kind.MEASURED, "of the model, relative to the measurement"),
    "file_system_load": Column(Kind.MEASURED, "greatest, bytes a second"),
    "steps_mixed": Column(Kind.MEASURED, "most steps that one snapshot has values of"),
    "order": Column(Kind.NOTE, "its place in the shuffled round"),
    "mtbf_seconds": Column(Kind.NAME, "between failures of the whole job"),
    "commit": Column(Kind.NOTE, "of DeepFreeze, by which it was run; `+`: with changes"),
    "cpu": Column(Kind.NOTE, "that it was run on"),
    "wall_seconds": Column(Kind.NOTE, "that the case took"),
    "reason": Column(Kind.NOTE, "why it is not ok; or what to know about it"),
    "detail": Column(Kind.NOTE, "what is no column, as JSON"),
}
NAMES = tuple(name for name, column in COLUMNS.items() if column.kind is Kind.NAME)


class RowError(ValueError):
    """A row that no reader could make sense of."""


def check(row: Row) -> Row:
    """The row itself; RowError where a column is unknown or one that every row has is missing."""
    unknown = sorted(set(row) - set(COLUMNS))
    if unknown:
        raise RowError(f"row of {row.get('experiment')}: no such column: {', '.join(unknown)}")
    if row.get("status") not in STATUSES:
        raise RowError(f"row of {row.get('experiment')}: status {row.get('status')!r}")
    if row["status"] != OK and not row.get("reason"):
        raise RowError(f"row of {row.get('experiment')}: {row['status']}, without a reason")
    return row


def identity(row: Row) -> tuple[Value, ...]:
    """Equal for repetitions of one measurement, and for the same one of another run."""
    return tuple(row.get(name) for name in NAMES)
