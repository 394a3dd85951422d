"""From raw rounds to one row a saver: medians over rounds, shares of the device paired in each."""

from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from lab.measure.alone_rounds import FIO, Experiment, Result
from lab.measure.fio import Transfer
from lab.measure.loop_summary import Spread, spread, worst_stall
from lab.networks.layout import Layout
from lab.writers.menu import NOTHING, Entry

NOT_INSTALLED = ("ModuleNotFoundError", "not installed")
GB = 1e9

# Of one round: what each figure is, and whether a small one is good.
LESS, MORE = "less", "more"
FIGURES = {
    "stall_seconds": LESS,  # later saves: until the state may be changed
    "call_seconds": LESS,
    "committed_seconds": LESS,
    "durable_seconds": LESS,
    "durable_rate": MORE,  # bytes a second
    "write_share": MORE,  # fio's seconds over these
    "overwrite_share": MORE,
    "first_stall_seconds": LESS,
    "first_durable_seconds": LESS,
    "open_seconds": LESS,
    "cpu_seconds_per_gb": LESS,
    "peak_per_byte": LESS,  # of memory above the state, over all saves
    "written_per_byte": LESS,
    "file_per_byte": LESS,
    "restore_seconds": LESS,
    "restore_rate": MORE,
    "read_share": MORE,
    "restore_cpu_seconds_per_gb": LESS,
    "restore_peak_per_byte": LESS,
    "partial_seconds": LESS,
}
Figures = dict[str, float]


@dataclass(frozen=True)
class Row:
    """One saver of one workload."""

    saver: str
    title: str
    synced: str
    verifies: str
    partial: str
    status: str  # "ok", "failed", "not installed" or "not run"
    faults: list[str]
    rounds_good: int
    rounds_run: int
    stall_worst_seconds: float | None
    stall_worst_is: str
    figures: dict[str, Spread]
    rounds: dict[int, Figures]  # what the medians are of


def rows(experiment: Experiment, results: list[Result]) -> list[Row]:
    return [row(experiment.layout, entry, results) for entry in experiment.entries]


def row(layout: Layout, entry: Entry, results: list[Result]) -> Row:
    mine = [one for one in results if one["saver"] == entry.name]
    good = [one for one in mine if "error" not in one]
    device = {one["round"]: one for one in limits(results)}
    by_round = {one["round"]: figures(layout, one, device.get(one["round"])) for one in good}
    stalls = sorted(save["captured_seconds"] for one in good for save in later(one))
    worst_is, worst = worst_stall(stalls) if stalls else ("", None)
    return Row(
        saver=entry.name,
        title=entry.title,
        synced=entry.synced,
        verifies=entry.verifies,
        partial=entry.partial,
        status=status(mine),
        faults=list(dict.fromkeys(one["error"] for one in mine if "error" in one)),
        rounds_good=len(good),
        rounds_run=len(mine),
        stall_worst_seconds=worst,
        stall_worst_is=worst_is,
        figures=over_rounds(by_round),
        rounds=by_round,
    )


def limits(results: list[Result]) -> list[Result]:
    return [one for one in results if one["saver"] == FIO and "error" not in one]


def status(results: list[Result]) -> str:
    errors = [one["error"] for one in results if "error" in one]
    if not results:
        return "not run"
    if not errors:
        return "ok"
    absent = all(error.startswith(NOT_INSTALLED) for error in errors)
    return "not installed" if absent else "failed"


def later(result: Result) -> list[dict[str, Any]]:
    """The saves after the first, which sets up; the first where there is no other."""
    saves: list[dict[str, Any]] = result["saves"]
    return saves[1:] or saves


def figures(layout: Layout, result: Result, device: Result | None) -> Figures:
    nbytes, restored = layout.nbytes, result["restore"]
    found = save_figures(layout, result) | {
        "restore_seconds": restored["seconds"],
        "restore_rate": nbytes / restored["seconds"],
        "restore_cpu_seconds_per_gb": restored["cpu_seconds"] / nbytes * GB,
        "restore_peak_per_byte": restored["peak_bytes"] / nbytes,
        "partial_seconds": restored["partial_seconds"],
    }
    return found | shares(layout, found, device)


def save_figures(layout: Layout, result: Result) -> Figures:
    nbytes, first = layout.nbytes, result["saves"][0]

    def middle(field: str) -> float:
        return float(median(save[field] for save in later(result)))

    return {
        "stall_seconds": middle("captured_seconds"),
        "call_seconds": middle("call_seconds"),
        "committed_seconds": middle("committed_seconds"),
        "durable_seconds": middle("durable_seconds"),
        "durable_rate": nbytes / middle("durable_seconds"),
        "first_stall_seconds": first["captured_seconds"],
        "first_durable_seconds": first["durable_seconds"],
        "open_seconds": result["open_seconds"],
        "cpu_seconds_per_gb": middle("cpu_seconds") / nbytes * GB,
        "peak_per_byte": max(save["peak_bytes"] for save in result["saves"]) / nbytes,
        "written_per_byte": middle("written_bytes") / nbytes,
        "file_per_byte": middle("file_bytes") / nbytes,
    }


def shares(layout: Layout, found: Figures, device: Result | None) -> Figures:
    """Of what the device does, by fio in the same round."""
    if device is None:
        return {}
    ideal = {
        name: Transfer(**device[name]).seconds_for(layout.nbytes)
        for name in ("write", "overwrite", "read")
    }
    return {
        "write_share": ideal["write"] / found["durable_seconds"],
        "overwrite_share": ideal["overwrite"] / found["durable_seconds"],
        "read_share": ideal["read"] / found["restore_seconds"],
    }


def over_rounds(by_round: dict[int, Figures]) -> dict[str, Spread]:
    found = {}
    for name in FIGURES:
        over = spread([one[name] for one in by_round.values() if name in one])
        if over is not None:
            found[name] = over
    return found


@dataclass(frozen=True)
class Comparison:
    """How many times better ours is than the best of the others, paired in each round."""

    figure: str
    peer: str
    times: Spread


def best_peer(
    mine: Row, others: list[Row], figure: str, *, durable: bool = False
) -> Comparison | None:
    """None where there is none. A durable peer is one that syncs its files at least."""
    less = FIGURES[figure] == LESS
    able = [
        one
        for one in others
        if one.status == "ok" and figure in one.figures and not (durable and one.synced == NOTHING)
    ]
    if not able or figure not in mine.figures:
        return None
    best = (min if less else max)(able, key=lambda one: one.figures[figure].median)
    pairs = [
        (ours[figure], best.rounds[index][figure])
        for index, ours in mine.rounds.items()
        if ours.get(figure) and best.rounds.get(index, {}).get(figure)
    ]
    times = spread([theirs / ours if less else ours / theirs for ours, theirs in pairs])
    return None if times is None else Comparison(figure, best.title, times)


def device_limit(results: list[Result]) -> dict[str, Spread]:
    """Bytes a second that fio moves, in each of its ways."""
    spreads = {
        name: spread(
            [one[name]["bytes"] / one[name]["seconds"] for one in limits(results) if name in one]
        )
        for name in ("write", "registered", "overwrite", "read")
    }
    return {name: one for name, one in spreads.items() if one is not None}


def as_json(experiment: Experiment, results: list[Result]) -> dict[str, Any]:
    layout = experiment.layout
    return {
        "workload": layout.name,
        "title": layout.title,
        "state_bytes": layout.nbytes,
        "tensor_count": len(layout.tensors),
        "partial": asdict(layout.partial),
        "rounds": experiment.rounds,
        "saves": experiment.saves,
        "seed": experiment.seed,
        "device": {name: asdict(one) for name, one in device_limit(results).items()},
        "rows": [asdict(one) for one in rows(experiment, results)],
        "results": results,
    }
