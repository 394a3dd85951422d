"""Runs `deepfreeze_simulate` and says what a checkpoint costs, by strategy and number of nodes.

All that comes out is simulated, and says so.
"""

import json
import math
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from deepfreeze.interval.arithmetic import Choice, Cost, Target, choose
from lab.measure.row import Row
from lab.simulation.machine import Machine, Workload

_ROOT = Path(__file__).resolve().parents[2]
PROGRAM = _ROOT / "build" / "release" / "lab" / "simulation" / "deepfreeze_simulate"
SECONDS_MAX = 600.0

RANK0, ALL_WRITE, ASYNCHRONOUS, DEEPFREEZE = "rank0", "all-write", "asynchronous", "deepfreeze"
STRATEGIES = (RANK0, ALL_WRITE, ASYNCHRONOUS, DEEPFREEZE)
LOCAL, PARALLEL = "local", "parallel"
NODES = (1, 4, 16, 64, 256, 1024, 4096)

Range = tuple[int, int] | None  # least and most of a node or a rank

LEAST_COST_SECONDS = 1e-9  # a save that costs nothing could be made at every moment


class NotInstalledError(Exception):
    """The program was not built here; says what it needs."""


class SimulationError(Exception):
    """The program refused the scenario or failed; says why."""


@dataclass(frozen=True)
class Setup:
    """How many train, and how they save."""

    strategy: str
    nodes: int
    ranks_per_node: int = 1
    storage: str = PARALLEL  # where a save is written first
    flush: bool = False  # then copied from the nodes to the parallel file system
    saves: int = 3
    interval: int = 4  # steps from one save to the next
    protect: tuple[int, int] | None = None  # by so many data and parity pieces on other nodes
    restore: bool = False  # after the training, the restores of a job that lost a node


@dataclass(frozen=True)
class Save:
    """Of one save, in seconds. Durable: from the first rank's call; None where it never is."""

    start_seconds: float
    blocking_median_seconds: float  # of the ranks: in save(), in the fence, in collectives
    blocking_max_seconds: float
    straggler_seconds: float  # the slowest rank less the median, at the worst collective
    straggler_seconds_without: float  # the same without the save: ranks are not equally fast
    durable_local_seconds: float | None
    durable_parallel_seconds: float | None
    protected_seconds: float | None  # None: never, or a newer save was protected instead
    pulled_bytes: Range  # read by a node from others for its parity
    sent_bytes: Range
    parity_bytes: Range
    bytes: int  # written by all ranks, where it is written first


@dataclass(frozen=True)
class Load:
    """What the parallel file system takes, each rank's data spread evenly over its time."""

    peak_bandwidth: float  # bytes a second
    bin_seconds: float
    bytes: tuple[float, ...]  # by bin


@dataclass(frozen=True)
class Protection:
    """The groups that the product makes of so many nodes, and its odds."""

    parity: int
    groups: tuple[tuple[int, ...], ...]
    loss_by_lost_nodes: tuple[float, ...]  # at once: the probability that a checkpoint is gone


@dataclass(frozen=True)
class Restore:
    """In seconds; None if there is no such copy."""

    near_seconds: float | None  # all nodes have their files
    parity_seconds: float | None  # those of one node are calculated
    flushed_seconds: float | None  # those of one node come from the parallel file system
    parallel_seconds: float | None  # all come from there


@dataclass(frozen=True)
class Simulated:
    setup: Setup
    ranks: int
    state_bytes: int
    share_bytes: Range  # of a rank, where a plan divides it
    training_seconds: float
    training_seconds_without: float  # without saves
    run_time_ratio: float
    save_seconds: float  # by which one save makes training longer
    settled_seconds: float  # until the last save is where it shall be
    saves: tuple[Save, ...]
    load: Load
    protection: Protection | None
    restore: Restore | None
    simulated: bool = field(init=False, default=True)

    def stall_seconds(self) -> float:
        """The worst rank's, of the median save."""
        return median(save.blocking_max_seconds for save in self.saves)

    def durable_seconds(self, place: str) -> float | None:
        """Of the median save; `place` is LOCAL or PARALLEL."""
        return _median_if_all(
            save.durable_local_seconds if place == LOCAL else save.durable_parallel_seconds
            for save in self.saves
        )

    def cost(self) -> Cost:
        """Of a step and of a save. Nothing is read back, by this measure."""
        step_seconds = self.training_seconds_without / (self.setup.saves * self.setup.interval)
        return Cost(step_seconds, max(self.save_seconds, LEAST_COST_SECONDS), 0.0)

    def protected_seconds(self) -> float | None:
        """Of the median save; None if a save was overtaken."""
        return _median_if_all(save.protected_seconds for save in self.saves)


@dataclass(frozen=True)
class Point:
    """One strategy on so many nodes, and how often it should save there."""

    result: Simulated
    mtbf_per_node_seconds: float
    best: Choice  # for the whole job's failures

    @property
    def mtbf_seconds(self) -> float:
        """Of the whole job: it fails when one of its nodes does."""
        return self.mtbf_per_node_seconds / self.result.setup.nodes

    @property
    def best_interval_steps(self) -> int:
        """No more often than a save becomes durable where it is written first."""
        durable = self.result.durable_seconds(self.result.setup.storage) or 0.0
        return max(self.best.steps, math.ceil(durable / self.best.cost.step_seconds))

    def row(self) -> Row:
        """In the study's columns; what has none is in `detail`."""
        result = self.result
        best_seconds = self.best_interval_steps * self.best.cost.step_seconds
        detail = {
            "blocking_median_seconds": median(s.blocking_median_seconds for s in result.saves),
            "straggler_seconds_without": median(s.straggler_seconds_without for s in result.saves),
            "durable_local_seconds": result.durable_seconds(LOCAL),
            "durable_parallel_seconds": result.durable_seconds(PARALLEL),
            "save_seconds": result.save_seconds,
            "best_interval_steps": self.best_interval_steps,
            "overhead_at_best_interval": self.best.cost.save_seconds / best_seconds,
            "mtbf_per_node_seconds": self.mtbf_per_node_seconds,
            "load_bin_seconds": result.load.bin_seconds,
            "load_bytes": list(result.load.bytes),
        }
        return {
            "simulated": True,
            "strategy": result.setup.strategy,
            "nodes": result.setup.nodes,
            "ranks": result.ranks,
            "interval": result.setup.interval,
            "state_bytes": result.state_bytes,
            "stall_seconds": result.stall_seconds(),
            "durable_seconds": result.durable_seconds(result.setup.storage),
            "straggler_seconds": median(save.straggler_seconds for save in result.saves),
            "run_time_ratio": result.run_time_ratio,
            "file_system_load": result.load.peak_bandwidth,
            "best_interval_seconds": best_seconds,
            "mtbf_seconds": self.mtbf_seconds,
            "detail": json.dumps(detail),
        }


def why_not_installed() -> str | None:
    """None where the program is there."""
    return None if PROGRAM.exists() else "not installed: libsimgrid-dev, then `make build`"


def scenario(machine: Machine, workload: Workload, setup: Setup) -> dict[str, Any]:
    """What the program reads."""
    counts = {"nodes": setup.nodes, "ranks_per_node": setup.ranks_per_node}
    return {
        "machine": {**machine.fields(), **counts},
        "workload": workload.fields(),
        "strategy": setup.strategy,
        "storage": setup.storage,
        "flush": setup.flush,
        "protect": _protect(setup),
        "restore": setup.restore,
        "saves": setup.saves,
        "interval": setup.interval,
    }


def _protect(setup: Setup) -> dict[str, int] | None:
    return (
        None if setup.protect is None else dict(zip(("data", "parity"), setup.protect, strict=True))
    )


def run(machine: Machine, workload: Workload, setup: Setup) -> Simulated:
    """NotInstalledError, SimulationError, TimeoutError beyond SECONDS_MAX."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "scenario.json"
        path.write_text(json.dumps(scenario(machine, workload, setup)))
        return _read(setup, _answer(path))


def curve(
    machine: Machine,
    workload: Workload,
    *,
    mtbf_per_node_seconds: float,
    nodes: Sequence[int] = NODES,
    strategies: Iterable[str] = STRATEGIES,
    interval: int = 4,
) -> list[Point]:
    """Every strategy on each number of nodes.

    DeepFreeze writes to the nodes and flushes behind that, the others to the parallel file system.
    """
    points = []
    for strategy in strategies:
        ours = strategy == DEEPFREEZE
        for count in nodes:
            storage = LOCAL if ours else PARALLEL
            setup = Setup(strategy, count, storage=storage, flush=ours, interval=interval)
            points.append(point(machine, workload, setup, mtbf_per_node_seconds))
    return points


def point(
    machine: Machine, workload: Workload, setup: Setup, mtbf_per_node_seconds: float
) -> Point:
    result = run(machine, workload, setup)
    target = Target(overhead=None, mtbf=mtbf_per_node_seconds / setup.nodes)
    return Point(result, mtbf_per_node_seconds, choose(result.cost(), target))


def _answer(path: Path) -> dict[str, Any]:
    reason = why_not_installed()
    if reason:
        raise NotInstalledError(reason)
    try:
        done = subprocess.run(
            [str(PROGRAM), str(path)], capture_output=True, text=True, check=False,
            timeout=SECONDS_MAX,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"the simulation took more than {SECONDS_MAX:g} s") from None
    if done.returncode != 0:
        raise SimulationError(done.stderr.strip() or f"status {done.returncode}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _read(setup: Setup, answer: dict[str, Any]) -> Simulated:
    load = answer["parallel_load"]
    seconds = {
        name: float(answer[name])
        for name in (
            "training_seconds", "training_seconds_without", "run_time_ratio", "save_seconds",
            "settled_seconds",
        )
    }  # fmt: skip
    if not all(map(math.isfinite, seconds.values())):
        raise SimulationError(f"the simulation answered {seconds}")
    return Simulated(
        setup=setup,
        ranks=int(answer["ranks"]),
        state_bytes=int(answer["state_bytes"]),
        share_bytes=_range(answer["share_bytes"]),
        saves=tuple(_save(save) for save in answer["saves"]),
        protection=_protection(answer["protection"]),
        restore=Restore(**answer["restore"]) if answer["restore"] else None,
        load=Load(load["peak_bandwidth"], load["bin_seconds"], tuple(load["bytes"])),
        **seconds,
    )


def _range(found: dict[str, int] | None) -> Range:
    return None if found is None else (found["least"], found["most"])


def _save(answer: dict[str, Any]) -> Save:
    ranges = ("pulled_bytes", "sent_bytes", "parity_bytes")
    return Save(**{**answer, **{name: _range(answer[name]) for name in ranges}})


def _protection(answer: dict[str, Any] | None) -> Protection | None:
    if answer is None:
        return None
    groups = tuple(map(tuple, answer["groups"]))
    return Protection(answer["parity"], groups, tuple(answer["loss_by_lost_nodes"]))


def _median_if_all(found: Iterable[float | None]) -> float | None:
    values = list(found)
    known = [value for value in values if value is not None]
    return median(known) if known and len(known) == len(values) else None
