"""The time that a training loses on 1 to 4,096 nodes that fail, by the copies of its checkpoints.

One save and the restores of each strategy are simulated; then failures are drawn, over and over.
Everything is simulated.
"""

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from deepfreeze.interval.arithmetic import Target, choose
from lab.simulation.failures import (
    Copies,
    Estimate,
    Failures,
    Saving,
    expected_loss,
    long_run,
    lost_share,
    parity_losses,
)
from lab.simulation.machine import Machine, Workload, nt3, one_tensor
from lab.simulation.model import (
    DEEPFREEZE,
    LOCAL,
    NODES,
    PARALLEL,
    Setup,
    Simulated,
    run,
)

RANK0, FAR_ONLY, PARTNER, PARITY = "rank0", "far-only", "partner", "parity"
SCHEMES = {PARTNER: (1, 1), PARITY: (6, 2)}
STRATEGIES = (RANK0, FAR_ONLY, PARTNER, PARITY)
NT3, SHARDED = "nt3", "sharded"
STEP_SECONDS = 10.0  # assumed
SHARD_BYTES = 16 * 10**9  # assumed, of each node: the state grows with the machine


@dataclass(frozen=True)
class Assumed:
    """Of jobs and nodes; nothing of it is measured."""

    mtbf_per_node_seconds: float = 5 * 365 * 86_400.0
    restart_seconds: float = 120.0  # a failure is noticed, another node comes, processes start
    far_every: int = 10  # with copies on other nodes, only every n-th save is flushed
    run_seconds: float = 30 * 86_400.0
    together: int = 1  # so many nodes fail at once ...
    together_share: float = 0.0  # ... in this share of the failures

    def failures(self, nodes: int) -> Failures:
        return Failures(nodes, self.mtbf_per_node_seconds, self.together, self.together_share)


# Llama 3 405B: 419 unexpected interruptions in 54 days of 16,384 GPUs, which are 2,048 nodes.
OFTEN = Assumed(mtbf_per_node_seconds=54 * 2048 / 419 * 86_400.0)


@dataclass(frozen=True)
class Trials:
    seed: int
    runs: int = 1_000  # of `run_seconds`
    failures: int = 20_000  # in the long run


@dataclass(frozen=True)
class Case:
    """A save of one strategy on so many nodes, and the restores of it."""

    workload: str
    strategy: str
    result: Simulated

    @property
    def nodes(self) -> int:
        return self.result.setup.nodes


@dataclass(frozen=True)
class Point:
    """That case in a job whose nodes fail."""

    case: Case
    saving: Saving
    mtbf_seconds: float  # of the job
    shares: tuple[float, ...]  # lost, of each run; ascending
    long: Estimate
    expected: float | None  # of `long`; None: no formula, a failure can take copies along

    def quantile(self, q: float) -> float:
        return self.shares[round(q * (len(self.shares) - 1))]

    @property
    def copies(self) -> Copies:
        """Those that most failures leave."""
        return self.saving.protected or self.saving.far


@dataclass(frozen=True)
class Together:
    """Several nodes fail at once: the share of failures that take a protected checkpoint along."""

    case: Case
    lost: int
    found: Estimate
    expected: float  # by the product's own odds


def workload(name: str, nodes: int) -> Workload:
    """Without jitter: behind it a short block would hide, and cost nothing."""
    if name == NT3:
        return nt3(STEP_SECONDS, jitter=0.0)
    tensors = one_tensor(SHARD_BYTES * nodes)
    return Workload(SHARDED, tensors, STEP_SECONDS, 0.95 * STEP_SECONDS, sharded=True)


def setup(strategy: str, nodes: int) -> Setup:
    if strategy == RANK0:
        return Setup(RANK0, nodes, storage=PARALLEL, saves=1, restore=True)
    protect = SCHEMES.get(strategy)
    return Setup(
        DEEPFREEZE, nodes, storage=LOCAL, flush=True, protect=protect, saves=1, restore=True
    )


def cases(
    machine: Machine,
    name: str,
    *,
    nodes: Sequence[int] = NODES,
    strategies: Iterable[str] = STRATEGIES,
) -> Iterator[Case]:
    """Without those that need more nodes."""
    for strategy in strategies:
        for count in nodes:
            if count > 1 or strategy not in SCHEMES:
                result = run(machine, workload(name, count), setup(strategy, count))
                yield Case(name, strategy, result)


def saving(case: Case, assumed: Assumed) -> Saving:
    """At the best interval by deepfreeze.interval, but no more often than copies become ready."""
    result = case.result
    far, near = _copies(case, assumed)
    cost = result.cost()
    best = choose(cost, Target(None, assumed.failures(case.nodes).mtbf_seconds))
    ready = max(near.ready_seconds if near else 0.0, far.ready_seconds / far.every)
    interval = max(best.steps, math.ceil(ready / cost.step_seconds)) * cost.step_seconds
    if result.protection is None:
        return Saving(interval, cost.save_seconds, assumed.restart_seconds, far)
    return Saving(
        interval, cost.save_seconds, assumed.restart_seconds, far, near,
        _group_of(result.protection.groups), result.protection.parity,
    )  # fmt: skip


def point(case: Case, assumed: Assumed, trials: Trials) -> Point:
    found = saving(case, assumed)
    failures = assumed.failures(case.nodes)
    draw = random.Random(f"{trials.seed} {case.workload} {case.strategy} {case.nodes}")
    shares = sorted(
        lost_share(found, failures, assumed.run_seconds, draw) for _ in range(trials.runs)
    )
    long = long_run(found, failures, trials.failures, draw)
    mtbf = failures.mtbf_seconds
    expected = None if found.protected else expected_loss(found, mtbf, found.far)
    return Point(case, found, mtbf, tuple(shares), long, expected)


def together(case: Case, trials: Trials, lost: int) -> Together:
    """Each failure takes so many nodes, and failures are so rare that each meets whole groups."""
    assert case.result.protection is not None
    rare = Assumed(1000 * Assumed.mtbf_per_node_seconds, together=lost, together_share=1.0)
    draw = random.Random(f"{trials.seed} together {case.strategy} {case.nodes}")
    share = parity_losses(saving(case, rare), rare.failures(case.nodes), trials.failures, draw)
    return Together(case, lost, share, case.result.protection.loss_by_lost_nodes[lost])


def _copies(case: Case, assumed: Assumed) -> tuple[Copies, Copies | None]:
    """On the parallel file system, and on other nodes."""
    result = case.result
    assert result.restore is not None
    ready = _known(result.durable_seconds(PARALLEL))
    restored = result.restore
    if case.strategy == RANK0:
        return Copies(ready, _known(restored.parallel_seconds)), None
    if case.strategy == FAR_ONLY:
        return Copies(ready, _known(restored.flushed_seconds)), None
    near = Copies(_known(result.protected_seconds()), _known(restored.parity_seconds))
    return Copies(ready, _known(restored.parallel_seconds), assumed.far_every), near


def _group_of(groups: Sequence[Sequence[int]]) -> tuple[int, ...]:
    by_node = {node: index for index, group in enumerate(groups) for node in group}
    return tuple(by_node[node] for node in range(len(by_node)))


def _known(seconds: float | None) -> float:
    assert seconds is not None
    return seconds
