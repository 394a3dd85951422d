"""The figures of the window as bars, on one HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from lab.measure.lines import Row, of_kind
from lab.report import svg
from lab.report.bench_page import STYLE, bar, by_value, facts
from lab.report.gpu_table import experiments
from lab.writers.loop import Saver

FIGURES = (
    ("Run time, over that without checkpoints", "run_time_ratio", "x", 1.0, "no checkpoints"),
    ("Stall of a save", "stall_ms", "ms", None, ""),
    ("From the device to the host, over the link's", "to_host_of_link", "x", 1.0, "link"),
    ("To disk", "to_disk_gb_per_second", "GB/s", None, ""),
)


def page(rows: list[Row]) -> str:
    head = f"<meta charset='utf-8'><title>DeepFreeze on a GPU</title><style>{STYLE}{svg.STYLE}"
    body = "\n".join([*map(facts, of_kind(rows, "run")), *sections(rows)])
    return f"<!doctype html><html lang='en'><head>{head}</style></head><body>{body}</body></html>\n"


def sections(rows: list[Row]) -> Iterator[str]:
    for model, every, mine in experiments(rows):
        savers = [row for row in mine if row["saver"] != Saver.name]
        yield f"<h2>{escape(model)}: a checkpoint every {every} steps</h2>"
        for title, figure, unit, line, label in FIGURES:
            found = sorted((bar(row, figure) for row in savers), key=by_value)
            yield f"<h3>{title}</h3>{svg.bars(found, unit, line=line, line_label=label)}"
