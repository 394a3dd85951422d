"""The measurements as a table on a terminal, as Markdown and as JSON."""

from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from lab.measure.loop import Experiment, Segment
from lab.measure.loop_summary import (
    BASELINE_SPREAD_MAX,
    Row,
    Spread,
    Target,
    baseline_spread,
    rows,
    targets,
)
from lab.report.grid import aligned, grid, machine_lines, short

HEADINGS = (
    "saver",
    "run time",
    "added per save",
    "in copies",
    "stall p50",
    "stall worst",
    "to commit",
    "size",
    "committed",
    "synced",
)


@dataclass
class Result:
    """An experiment and what has been measured of it so far."""

    experiment: Experiment
    segments: list[Segment]

    def rows(self) -> list[Row]:
        return rows(self.experiment, self.segments)

    def targets(self) -> list[Target]:
        return targets(self.experiment, self.rows())

    def failed(self) -> list[Row]:
        return [row for row in self.rows() if row["status"] == "failed"]

    def copy_seconds(self) -> list[float]:
        return [one.copy_seconds for one in self.segments if one.copy_seconds is not None]


def heading(result: Result) -> str:
    one = result.experiment
    interval = "every step" if one.every == 1 else f"every {one.every} steps"
    return f"{one.workload.title}: a checkpoint {interval}"


def size_line(result: Result) -> str:
    one = result.experiment
    known = [segment for segment in result.segments if segment.state_bytes]
    text = f"{one.rounds} rounds of {one.steps} steps, order seed {one.seed}"
    if known:
        text = f"{known[0].state_bytes / 1e6:,.1f} MB in {known[0].tensor_count} tensors; {text}"
    copies = result.copy_seconds()
    if copies:
        text += f"; one-core copy of the state {median(copies) * 1e3:.1f} ms"
    return text


def cells(row: Row) -> list[str]:
    if row["rounds_good"] == 0:
        middle = [row["status"].upper() if row["status"] == "failed" else row["status"]] + ["-"] * 6
    else:
        middle = [
            run_time(row),
            milliseconds(row["added_seconds_per_save"]),
            with_range(row["copies_per_save"], 2),
            milliseconds(row["stall_p50_seconds"]),
            worst(row),
            milliseconds(row["durable_p50_seconds"]),
            "-" if row["file_bytes"] is None else f"{row['file_bytes'].median / 1e6:,.1f} MB",
        ]
    return [row["title"], *middle, committed(row), row["synced"]]


def run_time(row: Row) -> str:
    if row["saver"] == row["baseline"]:
        return f"1 = {row['step_seconds'].median:.4g} s/step"
    failed = f" FAILED in {row['rounds_run'] - row['rounds_good']} of {row['rounds_run']} rounds"
    return with_range(row["ratio"]) + (failed if row["status"] == "failed" else "")


def with_range(value: Spread | None, digits: int = 3) -> str:
    if value is None:
        return "-"
    middle, low, high = (f"{one:.{digits}f}" for one in (value.median, value.low, value.high))
    return f"{middle} [{low}, {high}]"


def milliseconds(value: Spread | float | None) -> str:
    if value is None:
        return "-"
    return f"{(value.median if isinstance(value, Spread) else value) * 1e3:,.1f} ms"


def worst(row: Row) -> str:
    if row["stall_worst_seconds"] is None:
        return "-"
    return f"{milliseconds(row['stall_worst_seconds'])} ({row['stall_worst_is']})"


def committed(row: Row) -> str:
    if row["saver"] == row["baseline"] or row["status"].startswith("not "):
        return "-"
    skipped = f", {row['saves_skipped']} skipped" if row["saves_skipped"] else ""
    return f"{row['saves_committed']} of {row['saves_requested']}{skipped}"


def observed(result: Result) -> list[str]:
    """All that failed, and how to read the table."""
    found = []
    for row in result.rows():
        found += [f"{row['title']}: {short(fault)}" for fault in row["faults"]]
        if row["same_training"] is False:
            found.append(f"{row['title']}: its last loss differs from that without checkpoints")
    kinds = {row["ratio"].kind for row in result.rows() if row["ratio"] is not None}
    if kinds:
        found.append(f"[,]: {' or '.join(sorted(kinds))} of the rounds, beside their median")
    if any(row["title"].endswith("*") for row in result.rows()):
        found.append("*: optimizers stepped in backward, compared with each other")
    return found


def remarks(result: Result) -> list[str]:
    """Everything that the table has no column for."""
    found = observed(result)
    found += [verdict(one) for one in result.targets()]
    spread = baseline_spread(result.rows())
    if spread > BASELINE_SPREAD_MAX:
        found.append(
            f"no verdict on targets: the slowest round without checkpoints took {spread:.2f} times "
            f"as long as the fastest, more than {BASELINE_SPREAD_MAX}: the machine was busy"
        )
    return found


def verdict(one: Target) -> str:
    text = f"target {'met' if one.met else 'MISSED'}: {one.saver}: {one.what}: {one.measured:.4g}"
    sides = "; rounds on both sides" if one.both_sides else ""
    return f"{text}, at most {one.bound:g}{sides}"


def text(result: Result) -> str:
    """For a terminal."""
    lines = aligned(HEADINGS, [cells(row) for row in result.rows()], ruled=True)
    notes = [f"  {remark}" for remark in remarks(result)]
    return "\n".join([heading(result), f"({size_line(result)})", "", *lines, "", *notes])


def markdown(results: list[Result], machine: dict[str, Any], command: str) -> str:
    lines = ["# Checkpoints beside a training loop", "", f"`{command}`", ""]
    lines += machine_lines(machine)
    for result in results:
        lines += ["", f"## {heading(result)}", "", size_line(result), ""]
        lines += grid(HEADINGS, (cells(row) for row in result.rows()))
        lines += ["", *(f"- {remark}" for remark in remarks(result))]
    return "\n".join(lines) + "\n"


def figures(results: list[Result], machine: dict[str, Any], command: str) -> dict[str, Any]:
    """Everything, raw segments included, for a JSON file."""
    return {
        "format": 1,
        "command": command,
        "machine": machine,
        "experiments": [experiment_figures(result) for result in results],
    }


def as_json(row: Row) -> Row:
    return {name: asdict(it) if isinstance(it, Spread) else it for name, it in row.items()}


def experiment_figures(result: Result) -> dict[str, Any]:
    one = result.experiment
    return {
        "workload": one.name,
        "title": one.workload.title,
        "every": one.every,
        "rounds": one.rounds,
        "steps": one.steps,
        "warm_up_steps": one.warm_up_steps,
        "seed": one.seed,
        "orders": [[saver.name for saver in one.order(index)] for index in range(one.rounds)],
        "state_bytes": max((segment.state_bytes for segment in result.segments), default=0),
        "copy_seconds": result.copy_seconds(),
        "rows": [as_json(row) for row in result.rows()],
        "targets": [asdict(judged) for judged in result.targets()],
        "segments": [asdict(segment) for segment in result.segments],
    }
