"""What one experiment consists of: cases, each run in one go and kept as a whole."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from lab.measure.row import Row


@dataclass(frozen=True)
class Plan:
    """What the user asked for; the same plan gives the same cases in the same order."""

    quick: bool
    seed: int

    def random(self, *words: object) -> Random:
        """Of its own for each purpose: what one experiment draws changes no other."""
        return Random(" ".join(map(str, (self.seed, *words))))


@dataclass(frozen=True)
class Place:
    """Where a case works."""

    directory: Path  # its own, empty; deleted afterwards
    plan: Plan
    measured: Sequence[Row] = ()  # by the cases before it

    @property
    def shared(self) -> Path:
        """For all cases of this run of the study, and kept as long."""
        return self.directory.parent


class LeftOutError(Exception):
    """This machine lacks what the case needs; says what."""


class ToolError(Exception):
    """What was started failed, hung, or gave no answer; says which and why."""


def refusing(reason: str) -> Callable[[Place], Iterable[Row]]:
    """The work of a case that only says why something is not measured."""

    def work(_: Place) -> Iterable[Row]:
        raise LeftOutError(reason)

    return work


@dataclass(frozen=True)
class Case:
    """`work` gives its rows; what it raises becomes a row with a reason, and the study goes on.

    Each row it gives begins with `about`.
    """

    experiment: str
    name: str  # unique within the experiment, and the same whenever the plan is
    seconds: float  # about, on two cores: for the progress bar
    about: Row
    work: Callable[[Place], Iterable[Row]]
    environment: str = ""  # of lab.measure.program; empty: that of the study itself
    derived: bool = False  # from what the other cases of its experiment have measured

    @property
    def key(self) -> str:
        return f"{self.experiment}/{self.name}"


def in_turns(
    plan: Plan, name: str, loads: Sequence[Any], parts: Callable[[Any], Iterable[Any]]
) -> Iterator[tuple[Any, Any, int]]:
    """Load, part and number of the round. In rounds, so that a drift of the machine falls on all.

    Each round has an order of its own.
    """
    for repetition in range(max(load.rounds for load in loads)):
        there = [load for load in loads if repetition < load.rounds]
        turns = [(load, part, repetition) for load in there for part in parts(load)]
        plan.random(name, "order", repetition).shuffle(turns)
        yield from turns


@dataclass(frozen=True)
class Experiment:
    name: str
    title: str
    question: str  # that its rows answer
    cases: Callable[[Plan], Iterator[Case]] = field(repr=False)
