"""The local machine as the model's, from what one rank measured; and how well that predicts more.

Rows are dicts with strategy, ranks, stall_seconds, durable_seconds, step_seconds, state_bytes.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from lab.measure.row import Row, Value
from lab.simulation.machine import Machine, Parameter, Workload, one_tensor
from lab.simulation.model import ASYNCHRONOUS, DEEPFREEZE, LOCAL, STRATEGIES, Setup, Simulated, run

QUANTITIES = ("stall_seconds", "durable_seconds")
_NUMBERS = (*QUANTITIES, "step_seconds", "state_bytes")
WINDOW_SHARE = 0.9  # of a step: assumed, no row says it

_UNUSED = Parameter(1e12, "not used: one node, no parallel file system")
_FREE = Parameter(0.0, "not measured apart: in the bandwidths and in call_seconds")


class CalibrationError(ValueError):
    """The rows do not say enough; says what is missing."""


@dataclass(frozen=True)
class Calibration:
    machine: Machine
    serialize_bandwidths: Mapping[str, Parameter]  # by strategy that was measured
    cores: int
    state_bytes: int
    step_seconds: float

    def strategies(self) -> list[str]:
        return list(self.serialize_bandwidths)


def calibrate(rows: Iterable[Mapping[str, Value]], *, cores: int | None = None) -> Calibration:
    """From the rows of one rank: medians, by strategy. Needs some of deepfreeze; leaves out what is
    none of STRATEGIES.

    Storage is what DeepFreeze reaches, which serialises nothing. What another strategy takes
    longer than that is what it spends on serialising. CalibrationError.
    """
    measured = _medians(row for row in rows if row.get("ranks") == 1)
    if (DEEPFREEZE, 1) not in measured:
        raise CalibrationError(f"no row of one rank with strategy {DEEPFREEZE}")
    by_strategy = {
        strategy: _complete(strategy, found)
        for (strategy, _), found in measured.items()
        if strategy in STRATEGIES
    }
    ours = by_strategy[DEEPFREEZE]
    cores = cores or len(os.sched_getaffinity(0))
    write = _rate(ours["state_bytes"], ours["durable_seconds"] - ours["stall_seconds"])
    copy = _copy_bandwidth(by_strategy, write)
    window_seconds = WINDOW_SHARE * ours["step_seconds"]
    in_fence = max(0.0, ours["state_bytes"] / copy.value - window_seconds)
    machine = _local_machine(cores, write, copy, max(0.0, ours["stall_seconds"] - in_fence))
    return Calibration(
        machine,
        {name: _serialize(name, found, write) for name, found in by_strategy.items()},
        cores,
        round(ours["state_bytes"]),
        ours["step_seconds"],
    )


def predict(
    calibration: Calibration,
    ranks: Sequence[int] = (2, 4, 8),
    *,
    interval: int = 4,
    apart: bool = False,
) -> list[Row]:
    """A row for each strategy that was measured and each number of ranks on this machine.

    Ranks beyond the cores take turns: steps, and DeepFreeze's own calls, last as much longer.
    They share one storage; `apart`: each has its own, as in lab.experiments.ranks.sharing.
    """
    setups = [
        Setup(
            strategy,
            nodes=count if apart else 1,
            ranks_per_node=1 if apart else count,
            storage=LOCAL,
            interval=interval,
        )
        for strategy in calibration.strategies()
        for count in ranks
    ]
    return [_predicted(calibration, setup) for setup in setups]


@dataclass(frozen=True)
class Comparison:
    rows: list[Row]  # one for each strategy, number of ranks and quantity
    median: float | None  # of the errors' sizes; None where nothing could be compared
    worst: float | None


def compare(
    predicted: Iterable[Mapping[str, Value]], measured: Iterable[Mapping[str, Value]]
) -> Comparison:
    """Relative errors: 0.5 is half more than measured, -0.5 half less."""
    found = _medians(measured)
    rows: list[Row] = []
    for (strategy, ranks), values in _medians(predicted).items():
        for quantity in QUANTITIES:
            real = found.get((strategy, ranks), {}).get(quantity, 0.0)
            if real > 0 and quantity in values:
                error = (values[quantity] - real) / real
                rows.append({
                    "simulated": True, "strategy": strategy, "ranks": ranks, "quantity": quantity,
                    "measured": real, "predicted": values[quantity], "prediction_error": error,
                })  # fmt: skip
    sizes = [abs(float(row["prediction_error"] or 0.0)) for row in rows]
    return Comparison(rows, median(sizes) if sizes else None, max(sizes, default=None))


def _medians(rows: Iterable[Mapping[str, Value]]) -> dict[tuple[str, int], dict[str, float]]:
    """By strategy and ranks: the median of each number."""
    values: dict[tuple[str, int], dict[str, list[float]]] = {}
    for row in rows:
        key = (str(row.get("strategy")), int(row.get("ranks") or 0))
        numbers = values.setdefault(key, defaultdict(list))
        for name in _NUMBERS:
            value = row.get(name)
            if value is not None:
                numbers[name].append(float(value))
    return {
        key: {name: median(found) for name, found in numbers.items()}
        for key, numbers in values.items()
    }


def _complete(strategy: str, found: dict[str, float]) -> dict[str, float]:
    for name in _NUMBERS:
        if name not in found:
            raise CalibrationError(f"no row of one rank with strategy {strategy} has {name}")
    return found


def _rate(amount: float, seconds: float) -> Parameter:
    if amount <= 0 or seconds <= 0:
        raise CalibrationError(f"{amount:g} bytes in {seconds:g} s is no bandwidth")
    return Parameter(amount / seconds, "measured: what DeepFreeze reaches with one rank")


def _copy_bandwidth(by_strategy: Mapping[str, dict[str, float]], write: Parameter) -> Parameter:
    copying = by_strategy.get(ASYNCHRONOUS)
    if copying is None or copying["stall_seconds"] <= 0:
        return Parameter(write.value, "assumed: as fast as storage; asynchronous was not measured")
    rate = copying["state_bytes"] / copying["stall_seconds"]
    return Parameter(rate, "measured: what asynchronous reaches with one rank")


def _serialize(strategy: str, found: Mapping[str, float], write: Parameter) -> Parameter:
    """0: nothing that storage does not take anyway."""
    if strategy == DEEPFREEZE:
        return Parameter(0.0, "its image is the file")
    copied = found["stall_seconds"] if strategy == ASYNCHRONOUS else 0.0
    seconds = found["durable_seconds"] - copied - found["state_bytes"] / write.value
    rate = found["state_bytes"] / seconds if seconds > 0 else 0.0
    return Parameter(rate, f"measured: what {strategy} takes longer than storage with one rank")


def _local_machine(cores: int, write: Parameter, copy: Parameter, call_seconds: float) -> Machine:
    together = Parameter(cores * copy.value, "assumed: cores do not slow each other's copies down")
    return Machine(
        "local",
        {
            "cores_per_node": Parameter(cores, "of this machine"),
            "memory_bandwidth": together,
            "copy_bandwidth": copy,
            "serialize_bandwidth": _FREE,
            "call_seconds": Parameter(call_seconds, "measured: DeepFreeze's stall with one rank"),
            "seal_check_seconds": _FREE,
            "local.write_bandwidth": write,
            "local.read_bandwidth": write,
            "local.create_seconds": _FREE,
            "local.fsync_seconds": _FREE,
            "parallel.servers": Parameter(1, _UNUSED.source),
            "parallel.server_bandwidth": _UNUSED,
            "parallel.client_bandwidth": _UNUSED,
            "parallel.stripes": Parameter(1, _UNUSED.source),
            "parallel.create_seconds": _FREE,
            "parallel.fsync_seconds": _FREE,
            "network.bandwidth": _UNUSED,
            "network.latency_seconds": _FREE,
        },
    )


def _predicted(calibration: Calibration, setup: Setup) -> Row:
    turns = max(1.0, setup.nodes * setup.ranks_per_node / calibration.cores)
    call = calibration.machine.parameters["call_seconds"]
    machine = calibration.machine.with_(
        serialize_bandwidth=calibration.serialize_bandwidths[setup.strategy],
        call_seconds=Parameter(turns * call.value, call.source),
    )
    step_seconds = turns * calibration.step_seconds
    tensors = one_tensor(calibration.state_bytes)
    workload = Workload("local", tensors, step_seconds, WINDOW_SHARE * step_seconds)
    return _row(run(machine, workload, setup), step_seconds)


def _row(result: Simulated, step_seconds: float) -> Row:
    return {
        "simulated": True,
        "strategy": result.setup.strategy,
        "ranks": result.ranks,
        "stall_seconds": result.stall_seconds(),
        "durable_seconds": result.durable_seconds(LOCAL),
        "step_seconds": step_seconds,
        "state_bytes": result.state_bytes,
        "run_time_ratio": result.run_time_ratio,
    }
