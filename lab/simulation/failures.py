"""Nodes fail while a job trains: the time that it loses, by the copies that its saves have.

Failures are the events, drawn one by one; the saves between two of them are arithmetic. A failed
node comes back without its files.
"""

import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

FAR, PROTECTED = "far", "protected"


@dataclass(frozen=True)
class Copies:
    """Copies of a save, on other nodes or on the parallel file system."""

    ready_seconds: float  # from the beginning of the save
    restore_seconds: float
    every: int = 1  # only every n-th save has one


@dataclass(frozen=True)
class Saving:
    """Saves of one strategy on so many nodes, in seconds."""

    interval_seconds: float  # of training, between two saves
    save_seconds: float  # by which a save makes the training longer
    restart_seconds: float  # until a job with another node reads its state
    far: Copies
    protected: Copies | None = None
    group_of: tuple[int, ...] = ()  # by node
    parity: int = 0  # lost nodes that a group bears

    @property
    def cycle_seconds(self) -> float:
        return self.interval_seconds + self.save_seconds

    def work(self, elapsed: float) -> float:
        """Done in so many seconds since training began anew."""
        cycles, rest = divmod(elapsed, self.cycle_seconds)
        return cycles * self.interval_seconds + min(rest, self.interval_seconds)

    def newest(self, copies: Copies, elapsed: float) -> int:
        """The number of the newest save since then that has this copy; 0: none has."""
        since_first = elapsed - copies.ready_seconds - self.interval_seconds
        if since_first < 0:
            return 0
        saves = 1 + math.floor(since_first / self.cycle_seconds)
        return saves - saves % copies.every


@dataclass(frozen=True)
class Failures:
    """Each node fails at random, at a constant rate, alone or with others."""

    nodes: int
    mtbf_per_node_seconds: float
    together: int = 1  # so many nodes at once ...
    together_share: float = 0.0  # ... in this share of the failures

    @property
    def mtbf_seconds(self) -> float:
        """Of the job. Those that fail together make fewer failures of as many nodes."""
        lost = 1 + self.together_share * (self.size_together - 1)
        return self.mtbf_per_node_seconds / self.nodes * lost

    @property
    def size_together(self) -> int:
        return min(self.together, self.nodes)

    def lost_nodes(self, draw: random.Random) -> list[int]:
        if self.together_share and draw.random() < self.together_share:
            return draw.sample(range(self.nodes), self.size_together)
        return [draw.randrange(self.nodes)]


@dataclass(frozen=True)
class Event:
    """One failure."""

    wall_seconds: float  # since the one before
    trained_seconds: float  # of these, after the restore; 0: it came before the job was back
    kept_seconds: float  # of work, beyond the checkpoint before; below 0: that one is lost, too
    source: str  # FAR or PROTECTED
    parity_lost: bool  # there was a protected checkpoint, and its parity was not enough


@dataclass
class Job:
    """A training whose nodes fail."""

    saving: Saving
    work: float = 0.0  # of the checkpoint with which training began anew
    far_work: float = 0.0  # of the newest one on the parallel file system; 0: the beginning
    protected_work: float | None = None
    lost: set[int] = field(default_factory=set)  # nodes, since that one was protected
    down_seconds: float = 0.0  # until training begins anew

    def fail(self, wall_seconds: float, nodes: list[int]) -> Event:
        """So long after the failure before."""
        trained = max(0.0, wall_seconds - self.down_seconds)
        self._count_saves(trained)
        had_parity = self.protected_work is not None
        self._lose(nodes)
        parity_lost = had_parity and self.protected_work is None
        source, before = self._recover(), self.work
        self.work = self.far_work if source == FAR else self.protected_work or 0.0
        return Event(wall_seconds, trained, self.work - before, source, parity_lost)

    def _count_saves(self, trained: float) -> None:
        saving = self.saving
        far = saving.newest(saving.far, trained)
        if far:
            self.far_work = self.work + far * saving.interval_seconds
        near = saving.newest(saving.protected, trained) if saving.protected else 0
        if near:
            self.protected_work = self.work + near * saving.interval_seconds
            self.lost = set()

    def _lose(self, nodes: list[int]) -> None:
        """More nodes of a group than its parity bears take the checkpoint along."""
        if self.protected_work is None:
            return
        self.lost.update(nodes)
        by_group = Counter(self.saving.group_of[node] for node in self.lost)
        if max(by_group.values()) > self.saving.parity:
            self.protected_work = None

    def _recover(self) -> str:
        saving = self.saving
        near = saving.protected if self.protected_work is not None else None
        if near is None or (self.protected_work or 0.0) < self.far_work:
            self.protected_work = None  # there may be one, older than what is restored
            self.down_seconds = saving.restart_seconds + saving.far.restore_seconds
            return FAR
        self.down_seconds = saving.restart_seconds + near.restore_seconds
        return PROTECTED


def events(saving: Saving, failures: Failures, draw: random.Random) -> Iterator[Event]:
    """Without end."""
    job = Job(saving)
    while True:
        yield job.fail(draw.expovariate(1 / failures.mtbf_seconds), failures.lost_nodes(draw))


def lost_share(saving: Saving, failures: Failures, seconds: float, draw: random.Random) -> float:
    """Of so many seconds of a job, those that were no training that is still there at the end."""
    job, now = Job(saving), 0.0
    while True:
        gap = draw.expovariate(1 / failures.mtbf_seconds)
        if now + gap >= seconds:
            done = job.work + saving.work(max(0.0, seconds - now - job.down_seconds))
            return 1 - done / seconds
        now += gap
        job.fail(gap, failures.lost_nodes(draw))


@dataclass(frozen=True)
class Estimate:
    value: float
    error: float  # standard

    def errors_from(self, expected: float) -> float:
        """The distance in standard errors."""
        return abs(self.value - expected) / self.error if self.error else math.inf


def long_run(saving: Saving, failures: Failures, count: int, draw: random.Random) -> Estimate:
    """The share of time that is lost in the long run, over so many failures."""
    stream = events(saving, failures, draw)
    found = [next(stream) for _ in range(count)]
    wall = sum(event.wall_seconds for event in found)
    kept = sum(event.kept_seconds for event in found) / wall
    squares = sum((event.kept_seconds - kept * event.wall_seconds) ** 2 for event in found)
    return Estimate(1 - kept, math.sqrt(squares) / wall)


def parity_losses(saving: Saving, failures: Failures, count: int, draw: random.Random) -> Estimate:
    """The share of failures that take a protected checkpoint along."""
    stream = events(saving, failures, draw)
    share = sum(next(stream).parity_lost for _ in range(count)) / count
    return Estimate(share, math.sqrt(share * (1 - share) / count))


def expected_loss(saving: Saving, mtbf_seconds: float, copies: Copies) -> float:
    """The same by a formula, if each save has these copies and no failure takes them along.

    Failures are a renewal: training begins anew after R, restart and restore with failures during
    both, which takes M (exp(R / M) - 1) on average. With interval I, cost C and copies that are
    ready after L, the saves that a failure finds are worth I exp(-(I + L) / M) / (1 - exp(-(I + C)
    / M)). With L = C it is Daly's exact formula (FGCS 22(3), 2006).
    """
    down = saving.restart_seconds + copies.restore_seconds
    first = saving.interval_seconds + copies.ready_seconds
    kept = saving.interval_seconds * math.exp(-first / mtbf_seconds)
    kept /= -math.expm1(-saving.cycle_seconds / mtbf_seconds)
    return 1 - kept / (mtbf_seconds * math.exp(down / mtbf_seconds))
