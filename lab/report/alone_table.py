"""The rows as a table: for a terminal, and as Markdown for the README."""

from lab.measure.alone_rounds import Experiment, Result
from lab.measure.loop_summary import Spread
from lab.networks.layout import Layout
from lab.report.alone_summary import Comparison, Row, best_peer, device_limit, rows
from lab.report.grid import aligned, grid, short, with_spread

OURS = "df"
HEADINGS = (
    "saver",
    "stall",
    "durable GB/s",
    "of fio",
    "restore GB/s",
    "of fio",
    "one tensor",
    "CPU s/GB",
    "RSS above state",
    "written",
    "verified?",
    "synced?",
)
COMPARED = (
    ("stall", "stall_seconds"),
    ("durable", "durable_seconds"),
    ("restore", "restore_seconds"),
    ("one tensor", "partial_seconds"),
    ("CPU", "cpu_seconds_per_gb"),
    ("RSS", "peak_per_byte"),
)


def milliseconds(value: Spread | None) -> str:
    return "-" if value is None else with_spread(value, 1e-3, 1) + " ms"


def cells(row: Row, layout: Layout) -> list[str]:
    if row["rounds_good"] == 0:
        state = row["status"].upper() if row["status"] == "failed" else row["status"]
        return [row["title"], state, *["-"] * (len(HEADINGS) - 4), verified(row), row["synced"]]
    found = row["figures"].get
    failed = " FAILED in some rounds" if row["status"] == "failed" else ""
    return [
        row["title"] + failed,
        milliseconds(found("stall_seconds")),
        with_spread(found("durable_rate"), 1e9),
        with_spread(found("write_share")),
        with_spread(found("restore_rate"), 1e9),
        with_spread(found("read_share")),
        f"{milliseconds(found('partial_seconds'))} ({row['partial']})",
        with_spread(found("cpu_seconds_per_gb")),
        with_spread(found("peak_per_byte")),
        with_spread(found("written_per_byte")),
        verified(row),
        row["synced"],
    ]


def verified(row: Row) -> str:
    return row["verifies"] or "no"


def heading(experiment: Experiment) -> str:
    layout = experiment.layout
    count = f"{len(layout.tensors):,} tensors" if len(layout.tensors) > 1 else "one tensor"
    return f"{layout.title}: {layout.nbytes / 1e6:,.1f} MB in {count}"


def device_line(results: list[Result]) -> str:
    """The limit in words."""
    found = device_limit(results)
    if not found:
        return "fio: no limit of the device was measured"
    shown = ", ".join(f"{name} {with_spread(one, 1e9)} GB/s" for name, one in found.items())
    return f"fio: {shown}"


def comparisons(found: list[Row], *, durable: bool) -> list[Comparison]:
    mine = next((row for row in found if row["saver"] == OURS and row["figures"]), None)
    if mine is None:
        return []
    others = [row for row in found if not row["saver"].startswith(OURS)]
    compared = (best_peer(mine, others, figure, durable=durable) for _, figure in COMPARED)
    return [one for one in compared if one is not None]


def comparison_lines(found: list[Row]) -> list[str]:
    """How many times better DeepFreeze is; below 1 it is worse."""
    titles = {figure: title for title, figure in COMPARED}
    lines = []
    for words, durable in (("the best peer", False), ("the best that syncs", True)):
        shown = [
            f"{titles[one.figure]} {with_spread(one.times)}x ({one.peer})"
            for one in comparisons(found, durable=durable)
        ]
        if shown:
            lines.append(f"DeepFreeze against {words}: " + "; ".join(shown))
    return lines


def remarks(experiment: Experiment, results: list[Result]) -> list[str]:
    found = rows(experiment, results)
    lines = [device_line(results), *comparison_lines(found)]
    lines += [f"{row['title']}: {short(fault)}" for row in found for fault in row["faults"]]
    return lines


def text(experiment: Experiment, results: list[Result]) -> str:
    """For a terminal."""
    found = [cells(row, experiment.layout) for row in rows(experiment, results)]
    notes = [f"  {remark}" for remark in remarks(experiment, results)]
    return "\n".join([heading(experiment), "", *aligned(HEADINGS, found), "", *notes])


def markdown(experiment: Experiment, results: list[Result]) -> str:
    found = [cells(row, experiment.layout) for row in rows(experiment, results)]
    lines = [f"## {heading(experiment)}", "", *grid(HEADINGS, found), ""]
    return "\n".join([*lines, *(f"- {one}" for one in remarks(experiment, results))]) + "\n"
