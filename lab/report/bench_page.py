"""One HTML page from the JSON files of a run; it needs nothing but itself.

Reads storage*.json, growth.json and window-*.json of a directory, and writes report.html there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from lab.report import svg
from lab.report.alone_table import OURS
from lab.report.svg import Bar, Series, bars, curves

STYLE = """
:root { color-scheme: light dark; --ours: #1769d2; --peer: #98a1ad; --limit: #d2451e }
@media (prefers-color-scheme: dark) { :root { --ours: #6cb2ff; --peer: #6b7480; --limit: #ff8a5c } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
"""

STORAGE_PLOTS = (
    ("Seconds to durable", "durable_seconds", "s", "write"),
    ("Restore, cold", "restore_seconds", "s", "read"),
    ("Stall", "stall_seconds", "s", ""),
    ("Stall of the first save", "first_stall_seconds", "s", ""),
    ("One tensor, cold", "partial_seconds", "s", ""),
    ("Memory above the state, in states", "peak_per_byte", "x", ""),
    ("Processor seconds per GB", "cpu_seconds_per_gb", "s", ""),
)
BESIDE = ("state_dict_seconds", "first_call_seconds")  # in one plot with what is ours
GROWTH_NAMES = {"bytes": "bytes", "tensors": "tensors", "planning": "tensors"}


def page(folder: Path) -> str:
    measured = sorted(folder.glob("storage*.json"))
    sections = [part for path in measured for part in storage(read(path))]
    sections += window(folder)
    sections += growth(read(folder / "growth.json"))
    style = f"<style>{STYLE}{svg.STYLE}</style>"
    head = f"<meta charset='utf-8'><title>DeepFreeze: the bench</title>{style}"
    body = "\n".join(["<h1>DeepFreeze beside its peers</h1>", *sections])
    return f"<!doctype html><html lang='en'><head>{head}</head><body>{body}</body></html>\n"


def read(path: Path) -> dict[str, Any]:
    """Empty where that part has not been run."""
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def storage(found: dict[str, Any]) -> Iterator[str]:
    if not found:
        return
    yield facts(found)
    for one in found["experiments"]:
        size = f"{one['state_bytes'] / 1e6:,.1f} MB in {one['tensor_count']:,} tensors"
        yield f"<h2>{escape(one['title'])}: {size}</h2>"
        yield f"<p>Medians of {one['rounds']} rounds with their least and greatest.</p>"
        for title, figure, unit, limit in STORAGE_PLOTS:
            yield f"<h3>{title}</h3>{storage_plot(one, figure, unit, limit)}"


def facts(found: dict[str, Any]) -> str:
    machine = "; ".join(
        f"{escape(name.replace('_', ' '))} {escape(str(value))}"
        for name, value in found["machine"].items()
    )
    return f"<p><code>{escape(found['command'])}</code></p><p>{machine}</p>"


def storage_plot(one: dict[str, Any], figure: str, unit: str, limit: str) -> str:
    device = one["device"].get(limit)
    line = None if device is None else one["state_bytes"] / device["median"]
    found = sorted((bar(row, figure) for row in one["rows"]), key=by_value)
    return bars(found, unit, line=line, line_label="fio" if line is not None else "")


def bar(row: dict[str, Any], figure: str) -> Bar:
    value = row["figures"].get(figure)
    ours = row["saver"].startswith(OURS)
    if value is None:
        return Bar(row["title"], None, note=row["status"])
    return Bar(row["title"], value["median"], value["low"], value["high"], ours=ours)


def by_value(one: Bar) -> float:
    return float("inf") if one.value is None else one.value


def window(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("window-*.json")):
        for one in read(path)["experiments"]:
            title = f"{one['title']}: run time, a checkpoint every {one['every']} steps"
            rows = [row for row in one["rows"] if not row["title"].startswith("no checkpoints")]
            found = [window_bar(row) for row in rows]
            yield f"<h2>{escape(title)}</h2>"
            yield "<p>Over that of the same round without checkpoints.</p>"
            yield bars(found, "x", line=1.0, line_label="no checkpoints")


def window_bar(row: dict[str, Any]) -> Bar:
    ratio = row["ratio"]
    ours = row["saver"].startswith(OURS)
    if ratio is None:
        return Bar(row["title"], None, note=row["status"])
    return Bar(row["title"], ratio["median"], ratio["low"], ratio["high"], ours=ours)


def growth(found: dict[str, Any]) -> Iterator[str]:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in found.get("curves", []):
        # All of planning in one plot: the framework's own state_dict() is what it is held against.
        topic = "planning" if one["axis"] == "planning" else words(one["figure"])
        groups.setdefault((GROWTH_NAMES[one["axis"]], topic), []).append(one)
    for (name, topic), shown in groups.items():
        yield f"<h2>{escape(f'Growth with {name}: {topic}')}</h2>"
        yield curves(series(shown), name, "seconds")
        yield "<ul>" + "".join(f"<li>{escape(says(one))}</li>" for one in shown) + "</ul>"


def words(figure: str) -> str:
    return figure.removesuffix("_seconds").replace("_", " ")


def series(found: list[dict[str, Any]]) -> list[Series]:
    planning = len({one["saver"] for one in found}) == 1
    return [
        Series(
            words(one["figure"]) if planning else one["saver"],
            one["points"],
            ours=one["saver"] == OURS and one["figure"] not in BESIDE,
        )
        for one in found
    ]


def says(one: dict[str, Any]) -> str:
    line, name = one["line"], f"{one['saver']}, {words(one['figure'])}"
    if line is None:
        return f"{name}: too few points for a line"
    knee = "" if line["knee"] is None else f"; it leaves the line at {line['knee']:,.0f}"
    return (
        f"{name}: {line['base'] * 1e3:.2f} ms + {line['slope'] * 1e9:.3f} ns each, "
        f"within {line['worst']:.0%}{knee}"
    )


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0])
    (folder / "report.html").write_text(page(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
