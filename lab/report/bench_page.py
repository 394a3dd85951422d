"""The benchmarks' pages: `python -m lab.report.bench_page DIR` makes report.html of its JSON.

It reads storage*.json, growth.json, window-*.json, unchanged.json. That of the GPU has its rows.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from lab.measure.devices import Row, of_kind
from lab.report.alone_table import OURS
from lab.report.gpu_table import experiments
from lab.report.page import rendered
from lab.report.plots import Bar, Series, bars, curves
from lab.writers.loop import Saver

STORAGE_PLOTS = (
    ("Seconds to durable", "durable_seconds", "s", "write"),
    ("Restore, cold", "restore_seconds", "s", "read"),
    ("Stall", "stall_seconds", "s", ""),
    ("Stall of the first save", "first_stall_seconds", "s", ""),
    ("One tensor, cold", "partial_seconds", "s", ""),
    ("Memory above the state, in states", "peak_per_byte", "x", ""),
    ("Processor seconds per GB", "cpu_seconds_per_gb", "s", ""),
)
GPU_PLOTS = (
    ("Run time, over that without checkpoints", "run_time_ratio", "x", 1.0, "no checkpoints"),
    ("Stall of a save", "stall_ms", "ms", None, ""),
    ("From the device to the host, over the link's", "to_host_of_link", "x", 1.0, "link"),
    ("To disk", "to_disk_gb_per_second", "GB/s", None, ""),
)
MEGABYTE = 1e6
BESIDE = ("state_dict_seconds", "first_call_seconds")  # in one plot with ours
GROWTH_NAMES = {"bytes": "bytes", "tensors": "tensors", "planning": "tensors"}


@dataclass(frozen=True)
class Section:
    title: str = ""
    texts: tuple[str, ...] = ()
    pictures: tuple[tuple[str, Markup], ...] = ()
    notes: tuple[str, ...] = ()


def page(folder: Path) -> str:
    sections: list[Section] = []
    for path in sorted(folder.glob("storage*.json")):
        sections += storage(read(path))
    sections += [*window(folder), *unchanged(read(folder / "unchanged.json"))]
    sections += growth(read(folder / "growth.json"))
    return rendered("bench.html.j2", "DeepFreeze beside its peers", sections=sections)


def gpu_page(rows: list[Row]) -> str:
    sections = [facts(each) for each in of_kind(rows, "run")]
    for model, every, mine in experiments(rows):
        savers = [row for row in mine if row["saver"] != Saver.name]
        pictures = tuple(
            (
                title,
                barred((bar(row, row["figures"].get(name)) for row in savers), unit, line, text),
            )
            for title, name, unit, line, text in GPU_PLOTS
        )
        sections.append(Section(f"{model}: a checkpoint every {every} steps", pictures=pictures))
    return rendered("bench.html.j2", "DeepFreeze on a GPU", sections=sections)


def read(path: Path) -> dict[str, Any]:
    """Empty where that part has not been run."""
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def facts(found: dict[str, Any]) -> Section:
    machine = "; ".join(f"{name.replace('_', ' ')} {it}" for name, it in found["machine"].items())
    return Section(texts=(found["command"], machine))


def storage(found: dict[str, Any]) -> Iterator[Section]:
    if not found:
        return
    yield facts(found)
    for one in found["experiments"]:
        size = f"{one['state_bytes'] / 1e6:,.1f} MB in {one['tensor_count']:,} tensors"
        pictures = tuple((title, storage_plot(one, *how)) for title, *how in STORAGE_PLOTS)
        text = f"Medians of {one['rounds']} rounds with their least and greatest."
        yield Section(f"{one['title']}: {size}", (text,), pictures)


def storage_plot(one: dict[str, Any], figure: str, unit: str, limit: str) -> Markup:
    device = one["device"].get(limit)
    line = None if device is None else one["state_bytes"] / device["median"]
    return barred((bar(row, row["figures"].get(figure)) for row in one["rows"]), unit, line, "fio")


def window(folder: Path) -> Iterator[Section]:
    for path in sorted(folder.glob("window-*.json")):
        for one in read(path)["experiments"]:
            title = f"{one['title']}: run time, a checkpoint every {one['every']} steps"
            text = "Over that of the same round without checkpoints."
            yield Section(title, (text,), (("", run_times(one)),))


def run_times(one: dict[str, Any]) -> Markup:
    rows = [row for row in one["rows"] if not row["title"].startswith("no checkpoints")]
    found = [bar(row, row["ratio"]) for row in rows]
    return Markup(bars(found, "x", line=1.0, label="no checkpoints"))


def unchanged(found: dict[str, Any]) -> Iterator[Section]:
    for one in found.get("experiments", []):
        pictures = [("Run time", run_times(one))]
        pairs = zip(one["rows"], one["partial"], strict=True)
        saved = [(row, part) for row, part in pairs if part["saves"]]
        if saved:
            changed = saved[0][1]["changed_bytes"]["median"] / MEGABYTE
            written = (bar(row, megabytes(part["new_bytes"])) for row, part in saved)
            pictures.append(("New on disk in a save", barred(written, "MB", changed, "changed")))
        title = f"{one['title']}: a checkpoint at every step"
        yield Section(title, pictures=tuple(pictures))


def megabytes(value: dict[str, Any]) -> dict[str, float]:
    return {name: value[name] / MEGABYTE for name in ("median", "low", "high")}


def barred(found: Iterable[Bar], unit: str, line: float | None, label: str) -> Markup:
    """The least first; failures last."""
    ordered = sorted(found, key=lambda one: float("inf") if one.value is None else one.value)
    return Markup(bars(ordered, unit, line=line, label=label))


def bar(row: dict[str, Any], value: dict[str, Any] | None) -> Bar:
    if value is None:
        return Bar(row["title"], None, note=row["status"])
    ours = row["saver"].startswith(OURS)
    return Bar(row["title"], value["median"], value["low"], value["high"], ours=ours)


def growth(found: dict[str, Any]) -> Iterator[Section]:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in found.get("curves", []):
        # All of planning in one plot, beside its yardstick, the framework's own state_dict().
        topic = "planning" if one["axis"] == "planning" else words(one["figure"])
        groups.setdefault((GROWTH_NAMES[one["axis"]], topic), []).append(one)
    for (name, topic), shown in groups.items():
        picture = Markup(curves(series(shown), name, "seconds"))
        notes = tuple(says(one) for one in shown)
        yield Section(f"Growth with {name}: {topic}", pictures=(("", picture),), notes=notes)


def words(figure: str) -> str:
    return figure.removesuffix("_seconds").replace("_", " ")


def series(found: list[dict[str, Any]]) -> list[Series]:
    planning = len({one["saver"] for one in found}) == 1
    return [
        Series(
            words(one["figure"]) if planning else one["saver"], one["points"],
            ours=one["saver"] == OURS and one["figure"] not in BESIDE,
        ) for one in found
    ]  # fmt: skip


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
