"""From raw rounds to one row a saver: medians over rounds, shares of the device paired in each."""

from collections.abc import Callable
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

LESS, MORE = "less", "more"  # is good
Figures = dict[str, float]
Value = Callable[[int, Result], float]  # of the state's bytes and one round's result


def of_later(field: str) -> Value:
    """The median of the saves after the first, which sets up; the first if there is no other."""
    return lambda _, result: float(median(save[field] for save in later(result)))


def of_first(field: str) -> Value:
    return lambda _, result: float(result["saves"][0][field])


def of_restore(field: str) -> Value:
    return lambda _, result: float(result["restore"][field])


def a_byte(value: Value, scale: float = 1.0) -> Value:
    return lambda nbytes, result: value(nbytes, result) / nbytes * scale


def a_second(value: Value) -> Value:
    return lambda nbytes, result: nbytes / value(nbytes, result)


DURABLE, RESTORED = of_later("durable_seconds"), of_restore("seconds")
OF_SAVES: dict[str, tuple[str, Value]] = {
    "stall_seconds": (LESS, of_later("captured_seconds")),  # until the state may be changed
    "call_seconds": (LESS, of_later("call_seconds")),
    "committed_seconds": (LESS, of_later("committed_seconds")),
    "durable_seconds": (LESS, DURABLE),
    "durable_rate": (MORE, a_second(DURABLE)),
    "first_stall_seconds": (LESS, of_first("captured_seconds")),
    "first_durable_seconds": (LESS, of_first("durable_seconds")),
    "open_seconds": (LESS, lambda _, result: float(result["open_seconds"])),
    "cpu_seconds_per_gb": (LESS, a_byte(of_later("cpu_seconds"), GB)),
    # Of memory above the state, over all saves.
    "peak_per_byte": (LESS, a_byte(lambda _, one: max(s["peak_bytes"] for s in one["saves"]))),
    "written_per_byte": (LESS, a_byte(of_later("written_bytes"))),
    "file_per_byte": (LESS, a_byte(of_later("file_bytes"))),
}
OF_RESTORE: dict[str, tuple[str, Value]] = {
    "restore_seconds": (LESS, RESTORED),
    "restore_rate": (MORE, a_second(RESTORED)),
    "restore_cpu_seconds_per_gb": (LESS, a_byte(of_restore("cpu_seconds"), GB)),
    "restore_peak_per_byte": (LESS, a_byte(of_restore("peak_bytes"))),
    "partial_seconds": (LESS, of_restore("partial_seconds")),
}
# The seconds of fio, by its way, over these, in the same round.
SHARES = {
    "write_share": ("write", "durable_seconds"),
    "overwrite_share": ("overwrite", "durable_seconds"),
    "read_share": ("read", "restore_seconds"),
}
SENSES = {name: sense for name, (sense, _) in {**OF_SAVES, **OF_RESTORE}.items()}
SENSES |= dict.fromkeys(SHARES, MORE)
Row = dict[str, Any]  # one saver of one workload


def rows(experiment: Experiment, results: list[Result]) -> list[Row]:
    return [row(experiment.layout, entry, results) for entry in experiment.entries]


def row(layout: Layout, entry: Entry, results: list[Result]) -> Row:
    mine = [one for one in results if one["saver"] == entry.name]
    good = [one for one in mine if "error" not in one]
    device = {one["round"]: one for one in limits(results)}
    by_round = {one["round"]: figures(layout, one, device.get(one["round"])) for one in good}
    stalls = sorted(save["captured_seconds"] for one in good for save in later(one))
    worst_is, worst = worst_stall(stalls) if stalls else ("", None)
    spreads = {
        name: spread([one[name] for one in by_round.values() if name in one]) for name in SENSES
    }
    return {
        **{name: getattr(entry, name) for name in ("title", "synced", "verifies", "partial")},
        "saver": entry.name,
        "status": status(mine),  # "ok", "failed", "not installed" or "not run"
        "faults": list(dict.fromkeys(one["error"] for one in mine if "error" in one)),
        "rounds_good": len(good),
        "rounds_run": len(mine),
        "stall_worst_seconds": worst,
        "stall_worst_is": worst_is,
        "figures": {name: one for name, one in spreads.items() if one is not None},
        "rounds": by_round,  # the values of the medians
    }


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
    saves: list[dict[str, Any]] = result["saves"]
    return saves[1:] or saves


def save_figures(layout: Layout, result: Result) -> Figures:
    return {name: value(layout.nbytes, result) for name, (_, value) in OF_SAVES.items()}


def figures(layout: Layout, result: Result, device: Result | None) -> Figures:
    found = save_figures(layout, result)
    found |= {name: value(layout.nbytes, result) for name, (_, value) in OF_RESTORE.items()}
    for name, (way, seconds) in SHARES.items() if device is not None else ():
        ideal = Transfer(**device[way]).seconds_for(layout.nbytes)  # type: ignore[index]
        found[name] = ideal / found[seconds]
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
    less = SENSES[figure] == LESS
    able = [
        one
        for one in others
        if one["status"] == "ok"
        and figure in one["figures"]
        and not (durable and one["synced"] == NOTHING)
    ]
    if not able or figure not in mine["figures"]:
        return None
    best = (min if less else max)(able, key=lambda one: one["figures"][figure].median)
    pairs = [
        (ours[figure], best["rounds"][index][figure])
        for index, ours in mine["rounds"].items()
        if ours.get(figure) and best["rounds"].get(index, {}).get(figure)
    ]
    times = spread([theirs / ours if less else ours / theirs for ours, theirs in pairs])
    return None if times is None else Comparison(figure, best["title"], times)


def device_limit(results: list[Result]) -> dict[str, Spread]:
    """Bytes a second that fio moves, in each of its ways."""
    spreads = {
        name: spread(
            [one[name]["bytes"] / one[name]["seconds"] for one in limits(results) if name in one]
        )
        for name in ("write", "registered", "overwrite", "read")
    }
    return {name: one for name, one in spreads.items() if one is not None}


def as_rows_json(row: Row) -> Row:
    return row | {"figures": {name: asdict(one) for name, one in row["figures"].items()}}


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
        "rows": [as_rows_json(one) for one in rows(experiment, results)],
        "results": results,
    }
