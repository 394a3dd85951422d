"""What was found, as Markdown: from the lines that the parts have written."""

from collections.abc import Iterator
from typing import Any

from lab.measure.devices import Row, of_kind
from lab.measure.loop_summary import Spread
from lab.report.grid import grid, line_of, short, with_spread

HEADINGS = (
    "saver",
    "run time",
    "until durable",
    "stall",
    "stall worst",
    "device waits",
    "to host, GB/s",
    "of the link",
    "to disk, GB/s",
    "host memory",
    "device memory",
    "committed",
)
GB = 1e9
TORN_HEADINGS = ("saver", "trials", "torn", "failed", "first error")
STALL_HEADINGS = ("workload", "saves", "p50", "p99", "worst", "captured", "durable", "first error")
RESUME_HEADINGS = ("workload", "steps", "resumed from", "last loss", "bit for bit the same")


def markdown(parts: dict[str, list[Row]]) -> str:
    """Of all parts that have been run, by name."""
    lines = ["# Checkpoints of a training on one GPU", ""]
    for name, rows in parts.items():
        lines += [f"## {name}", "", *facts(rows), "", *SECTIONS[name](rows)]
        lines += [*(f"- {note['text']}" for note in of_kind(rows, "note")), ""]
    return "\n".join(lines).rstrip() + "\n"


def facts(rows: list[Row]) -> list[str]:
    """Of each call that measured some of it: the command, and where it ran."""
    found = []
    for one in of_kind(rows, "run"):
        where = "; ".join(
            f"{name.replace('_', ' ')} {value}" for name, value in one["machine"].items()
        )
        found += [f"`{one['command']}`", "", where, ""]
    return found[:-1]


def window(rows: list[Row]) -> Iterator[str]:
    for model, every, mine in experiments(rows):
        size = max(row["state_bytes"] for row in mine) / 1e9
        yield f"### {model}: {size:,.3f} GB, a checkpoint every {every} steps"
        yield ""
        yield from grid(HEADINGS, (cells(row) for row in mine))
        yield ""
        faults = [f"- {row['title']}: {short(one)}" for row in mine for one in row["faults"]]
        yield from [*faults, ""] if faults else []
    for one in of_kind(rows, "link"):
        rate = ranged(one["gb_per_second"])
        what = f"the link, {one['bytes'] / 1e6:,.0f} MB: {rate} GB/s"
        yield f"- round {one['round'] + 1}: {what}{counted(one['resident'])}"
    for one in of_kind(rows, "target"):
        yield target(f"{one['workload']} every {one['every']}: ", one)


def target(place: str, one: Row) -> str:
    measured = "not measured" if one["measured"] is None else f"{one['measured']:.4g}"
    verdict = "met" if one["met"] else "MISSED"
    return f"- target {verdict}: {place}{one['what']}: {measured}, {one['sense']} {one['bound']}"


def counted(resident: float | None) -> str:
    return "" if resident is None else f"; {resident:.2f} of pinned memory is in *host memory*"


def experiments(rows: list[Row]) -> Iterator[tuple[str, int, list[Row]]]:
    """Title, interval and rows of each."""
    found: dict[tuple[str, int], list[Row]] = {}
    for row in of_kind(rows, "row"):
        found.setdefault((row["model"], row["every"]), []).append(row)
    for (model, every), mine in found.items():
        yield model, every, mine


def cells(row: Row) -> list[str]:
    figures = row["figures"]
    if row["rounds"] == 0:
        return [row["title"], row["status"], *["-"] * (len(HEADINGS) - 2)]
    run_time = figures["run_time_ratio"]
    worst = row["stall_worst_ms"]
    return [
        row["title"],
        ranged(run_time) if run_time else f"1 = {ranged(figures['step_ms'])} ms/step",
        ranged(figures["until_durable_ratio"]),
        milliseconds(figures["stall_ms"]),
        "-" if worst is None else f"{worst:,.2f} ms ({row['stall_worst_is']})",
        milliseconds(figures["stream_wait_ms"]),
        ranged(figures["to_host_gb_per_second"]),
        ranged(figures["to_host_of_link"]),
        ranged(figures["to_disk_gb_per_second"]),
        memory(figures["host_above_bytes"], figures["host_peak_bytes"]),
        memory(figures["device_above_bytes"], figures["device_peak_bytes"]),
        f"{row['saves_committed']} of {row['saves_requested']}",
    ]


def ranged(found: dict[str, Any] | None, scale: float = 1) -> str:
    return with_spread(None if found is None else Spread(**found), scale)


def milliseconds(found: dict[str, Any] | None) -> str:
    return "-" if found is None else f"{ranged(found)} ms"


def memory(above: dict[str, Any] | None, peak: dict[str, Any] | None) -> str:
    """What the saver adds; of the loop without checkpoints all."""
    if above is not None:
        return f"{ranged(above, GB)} GB more"
    return "-" if peak is None else f"{ranged(peak, GB)} GB"


def torn(rows: list[Row]) -> Iterator[str]:
    yield from grid(TORN_HEADINGS, ())
    for row in of_kind(rows, "torn"):
        counts = [str(row[name]) for name in ("trials", "torn", "failed")]
        yield line_of([row["title"], *counts, short(next(iter(row["errors"]), "-"))])
    yield ""
    yield from (target("", one) for one in of_kind(rows, "target"))


def resume(rows: list[Row]) -> Iterator[str]:
    yield from grid(RESUME_HEADINGS, ())
    for row in of_kind(rows, "resume"):
        if "error" in row:
            yield line_of([row["workload"], *["-"] * 3, short(row["error"])])
            continue
        loss = float.fromhex(row["losses_resumed"][-1])
        said = "yes" if row["same"] else "NO"
        numbers = [str(row["steps"]), str(row["resumed_from"]), f"{loss:.9g}"]
        yield line_of([row["workload"], *numbers, said])


def stall(rows: list[Row]) -> Iterator[str]:
    yield from grid(STALL_HEADINGS, ())
    for row in of_kind(rows, "stall"):
        error = short(next(iter(row["errors"]), "-"))
        if "call" not in row:
            yield line_of([row["title"], str(row["saves"]), *["-"] * 5, error])
            continue
        call = [f"{row['call'][what]:,.2f} ms" for what in ("p50", "p99", "worst")]
        later = [f"{row[what]['p50']:,.2f} ms" for what in ("captured", "durable")]
        yield line_of([row["title"], str(row["saves"]), *call, *later, error])
    yield ""
    yield from (target(f"{one['workload']}: ", one) for one in of_kind(rows, "target"))


SECTIONS = {"window": window, "stall": stall, "torn": torn, "resume": resume}
