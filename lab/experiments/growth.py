"""How costs grow with bytes and with the number of tensors; with a straight line through each.

Exit status: 0; 1 where DeepFreeze failed; 130 where interrupted (what was measured stays).
"""

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from lab.experiments.storage import follow
from lab.measure import alone as jobs
from lab.measure import machine
from lab.measure.files import scratch
from lab.measure.options import interruptible, make_parser, positive, seeded
from lab.measure.program import try_to_ask
from lab.networks.layout import Layout, equal_tensors
from lab.report import alone_summary as summary
from lab.writers.menu import SAVERS, Entry

PROGRAM = "lab.experiments.growth"
BYTES = [10_000_000, 30_000_000, 100_000_000, 300_000_000, 1_000_000_000, 2 * 10**9, 4 * 10**9]
BYTES_QUICK = [10_000_000, 50_000_000, 200_000_000]
COUNTS = [1, 10, 100, 1_000, 10_000, 100_000]
COUNTS_QUICK = [1, 100, 10_000]
TENSORS = 100  # while bytes grow
FIXED_BYTES = 256_000_000  # while tensors grow
COMPARED = ("df", "torch-save-fsync", "dcp-async-reused")
MEASURED = ("stall_seconds", "first_stall_seconds", "durable_seconds")

Point = dict[str, Any]


def layouts(*, quick: bool) -> Iterator[tuple[str, int, Layout]]:
    for nbytes in BYTES_QUICK if quick else BYTES:
        yield "bytes", nbytes, equal_tensors("growth", "", TENSORS, nbytes)
    for count in COUNTS_QUICK if quick else COUNTS:
        yield "tensors", count, equal_tensors("growth", "", count, FIXED_BYTES)


def points(options: argparse.Namespace, seed: int, place: Path) -> Iterator[Point]:
    path = place / "layout.json"
    for round_index in range(options.rounds):
        for axis, size, layout in layouts(quick=options.quick):
            layout.write(path)
            for name in random.Random(f"{seed} {round_index} {size}").sample(COMPARED, 3):
                follow(f"growth round {round_index + 1}, {size:,} {axis}: {name}")
                found = saved(SAVERS[name], layout, path, place, seed)
                yield {"axis": axis, "size": size, "saver": name, **found}
            if axis == "tensors":
                yield {"axis": "planning", "size": size, "saver": "df", **planned(size, place)}


def saved(entry: Entry, layout: Layout, path: Path, place: Path, seed: int) -> dict[str, Any]:
    found = jobs.save_alone(entry, path, place / "checkpoints", seed, saves=3)
    if "error" in found:
        return {"error": found["error"]}
    figures = summary.save_figures(layout, found)
    return {name: figures[name] for name in MEASURED}


def planned(count: int, place: Path) -> dict[str, Any]:
    request = {"count": count, "directory": str(place)}
    return try_to_ask(Path(sys.executable), "lab.measure.planning", request, place)


def curves(found: list[Point]) -> list[dict[str, Any]]:
    """For every saver and figure: medians over the rounds, and the line through them."""
    made = []
    for axis in ("bytes", "tensors", "planning"):
        for saver in COMPARED:
            mine = [one for one in found if (one["axis"], one["saver"]) == (axis, saver)]
            good = [one for one in mine if "error" not in one]
            figures = sorted({name for one in good for name in one if name.endswith("_seconds")})
            for figure in figures:
                values = medians(good, lambda one, name=figure: one[name])  # type: ignore[misc]
                line = fit(values)
                made.append(
                    {
                        "axis": axis,
                        "saver": saver,
                        "figure": figure,
                        "points": values,
                        "line": None if line is None else asdict(line),
                    }
                )
    return made


def medians(found: list[Point], value: Callable[[Point], float]) -> list[tuple[float, float]]:
    sizes = sorted({one["size"] for one in found})
    return [(size, median(value(one) for one in found if one["size"] == size)) for size in sizes]


def as_json(found: list[Point], described: dict[str, Any], seed: int) -> dict[str, Any]:
    return {
        "format": 1,
        "machine": described,
        "seed": seed,
        "tensors_while_bytes_grow": TENSORS,
        "bytes_while_tensors_grow": FIXED_BYTES,
        "curves": curves(found),
        "points": found,
    }


def text(found: list[Point]) -> str:
    """What each line says."""
    lines = []
    for curve in curves(found):
        line = curve["line"]
        if line is None:
            continue
        knee = f", off it at {line['knee']:,.0f}" if line["knee"] is not None else ""
        lines.append(
            f"  {curve['axis']:<9}{curve['saver']:<18}{curve['figure']:<21}"
            f"{line['base'] * 1e3:9.2f} ms + {line['slope'] * 1e9:10.3f} ns each, "
            f"within {line['worst']:.0%}{knee}"
        )
    lines += [f"  {one['saver']} at {one['size']:,}: {one['error']}" for one in failed(found)]
    return "\n".join(lines)


def failed(found: list[Point]) -> list[Point]:
    return [one for one in found if "error" in one]


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser(PROGRAM, __doc__, "contents and orders", json="every point")
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--quick", action="store_true", help="few and small sizes")
    return parser.parse_args(arguments)


@interruptible
def main(arguments: list[str]) -> int:
    options = parse(arguments)
    seed = seeded(options, PROGRAM)
    found: list[Point] = []
    with scratch(options.directory, "bench-growth-") as place:
        described = machine.describe(place, threads=1)
        try:
            for point in points(options, seed, place.resolve()):
                found.append(point)
                if options.json is not None:
                    options.json.write_text(json.dumps(as_json(found, described, seed)) + "\n")
        finally:
            print(text(found), flush=True)
    return 1 if any(one["saver"] == "df" for one in failed(found)) else 0


# Is it a straight line? A least-squares fit of costs over sizes.


KNEE = 0.25  # a point further off the line than this share of its own value is named


@dataclass(frozen=True)
class Line:
    """cost = base + slope * size."""

    base: float
    slope: float
    worst: float  # the greatest distance of a point, as a share of its value
    knee: float | None  # the size of that point, where it is far off

    def at(self, size: float) -> float:
        return self.base + self.slope * size


def fit(points: list[tuple[float, float]]) -> Line | None:
    """Weighted so that relative distances count: sizes span orders of magnitude."""
    if len(points) < 3 or any(cost <= 0 for _, cost in points):
        return None
    weights = [1 / cost**2 for _, cost in points]
    total = sum(weights)
    mean_x = sum(w * x for w, (x, _) in zip(weights, points, strict=True)) / total
    mean_y = sum(w * y for w, (_, y) in zip(weights, points, strict=True)) / total
    pairs = list(zip(weights, points, strict=True))
    spread = sum(w * (x - mean_x) ** 2 for w, (x, _) in pairs)
    slope = sum(w * (x - mean_x) * (y - mean_y) for w, (x, y) in pairs) / spread
    base = mean_y - slope * mean_x
    distances = [(abs(base + slope * x - y) / y, x) for x, y in points]
    worst, where = max(distances)
    return Line(base, slope, worst, where if worst > KNEE else None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
