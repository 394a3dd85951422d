"""Ways to save a state of which only a part changes, as a table and as JSON."""

from dataclasses import asdict
from typing import Any

from lab.measure.loop_summary import BASELINE_SPREAD_MAX, Row, Spread, baseline_spread
from lab.measure.partial_summary import Partial, partials, targets
from lab.report import loop_table
from lab.report.grid import aligned, grid, machine_lines, with_spread
from lab.report.loop_table import (
    Result,
    heading,
    milliseconds,
    observed,
    run_time,
    size_line,
    verdict,
    with_range,
)

MEGABYTE = 1e6
HEADINGS = (
    "saver",
    "run time",
    "run time of the adapter's",
    "stall p50",
    "stall of the adapter's",
    "to commit",
    "new on disk a save",
    "of the changed bytes",
    "restore",
    "came back",
    "synced",
)
NOTES = (
    "new on disk a save, of the changed bytes: the files of further saves by their inodes and "
    "blocks, and that over the bytes of the tensors that had changed; 1 would be no header "
    "and no padding",
    "restore: from files that are not in memory, into another training, all of whose tensors are "
    "there. Came back: whether its state is then the saved one, byte for byte",
)
NOTHING = "-"


def cells(row: Row, one: Partial, state_bytes: int) -> list[str]:
    if row["rounds_good"] == 0:
        status = row["status"]
        figures = [status.upper() if status == "failed" else status] + [NOTHING] * 8
    else:
        figures = [
            run_time(row), with_range(one.run_ratio, 2), milliseconds(row["stall_p50_seconds"]),
            with_range(one.stall_ratio, 2), milliseconds(row["durable_p50_seconds"]),
            megabytes(one.new_bytes), of_changed(one),
            with_spread(one.restore_seconds, 1e-3, 0) + (" ms" if one.restore_seconds else ""),
            came_back(one, state_bytes),
        ]  # fmt: skip
    return [row["title"], *figures, row["synced"]]


def megabytes(value: Spread | None) -> str:
    """Most are the same in all rounds."""
    if value is None:
        return NOTHING
    low, high = (f"{one / MEGABYTE:,.2f}" for one in (value.low, value.high))
    return f"{low if low == high else with_spread(value, MEGABYTE)} MB"


def of_changed(one: Partial) -> str:
    if one.new_bytes is None or one.changed_bytes is None:
        return NOTHING
    return f"{one.new_bytes.median / one.changed_bytes.median:.2f}"


def came_back(one: Partial, state_bytes: int) -> str:
    if one.lost_bytes is None:
        return NOTHING
    if one.lost_bytes == 0:
        return "whole"
    share = f"{100 * one.lost_bytes / state_bytes:.1f} %"
    return f"not whole: {share} missing, of {', '.join(one.lost_parts)}"


def table(result: Result) -> tuple[list[str], list[list[str]]]:
    """Headings and lines, without the columns that nobody has a figure in."""
    found = partials(result.experiment, result.segments)
    size = max((one.state_bytes for one in result.segments), default=0)
    lines = [cells(row, one, size) for row, one in zip(result.rows(), found, strict=True)]
    columns = zip(HEADINGS, *lines, strict=True)
    kept = [column for column in columns if any(cell != NOTHING for cell in column[1:])]
    headings, *rest = map(list, zip(*kept, strict=True))
    return headings, rest


def changed(result: Result) -> str:
    known = [one.changed_bytes for one in partials(result.experiment, result.segments)]
    found = next((one for one in known if one is not None), None)
    return "" if found is None else f"; {megabytes(found)} of it change in a step"


def remarks(result: Result) -> list[str]:
    found = observed(result)
    found += [verdict(one) for one in targets(result.experiment, result.segments)]
    busy = baseline_spread(result.rows())
    if busy > BASELINE_SPREAD_MAX:
        found.append(
            f"no verdict on times: the slowest round without checkpoints took {busy:.2f} times as "
            f"long as the fastest, more than {BASELINE_SPREAD_MAX}: the machine was busy"
        )
    return found


def text(result: Result) -> str:
    """For a terminal."""
    lines = aligned(*table(result), ruled=True)
    notes = [f"  {remark}" for remark in remarks(result)]
    about = f"({size_line(result)}{changed(result)})"
    return "\n".join([heading(result), about, "", *lines, "", *notes])


def markdown(results: list[Result], machine: dict[str, Any], command: str) -> str:
    page = ["# Saves of a state of which only a part changes", "", f"`{command}`", ""]
    page += [*machine_lines(machine), "", *(f"- {note}" for note in NOTES)]
    for result in results:
        page += ["", f"## {heading(result)}", "", size_line(result) + changed(result), ""]
        page += grid(*table(result))
        page += ["", *(f"- {remark}" for remark in remarks(result))]
    return "\n".join(page) + "\n"


def figures(results: list[Result], machine: dict[str, Any], command: str) -> dict[str, Any]:
    """Those of a training, and for each experiment the results of its savers."""
    found = loop_table.figures(results, machine, command)
    for told, result in zip(found["experiments"], results, strict=True):
        told["partial"] = [asdict(one) for one in partials(result.experiment, result.segments)]
        told["targets"] = [asdict(one) for one in targets(result.experiment, result.segments)]
    return found
