"""The results that the oracle demands, and those that it accepts."""

from __future__ import annotations

import pytest

from .children import ViolationError
from .on_disk import Held
from .oracle import Oracle
from .state import Point, World, digests_at

WORLD = World(1)


def live(oracle: Oracle, life: int, origin: Point | None, *steps: int) -> None:
    """A life that goes on from `origin`, with all of its steps acknowledged."""
    restored = {
        "kind": "restored",
        "point": None if origin is None else [origin.life, origin.step],
        "digests": {} if origin is None else digests_at(WORLD, origin),
        "fell_back": [],
        "chosen": True,
    }
    oracle.heed(life, restored)
    for step in steps:
        oracle.heed(life, {"kind": "begun", "step": step})
        oracle.heed(life, {"kind": "durable", "step": step})


def points(life: int, *steps: int) -> set[Point]:
    return {Point(life, step) for step in steps}


def test_the_newest_of_a_line_are_required() -> None:
    oracle = Oracle(WORLD, keep=2)
    live(oracle, 1, None, 1, 2, 3)
    assert oracle.required() == points(1, 2, 3)
    with pytest.raises(ViolationError, match="was acknowledged, and is lost"):
        oracle.check_held([Held(Point(1, 3), "step-3")])


def test_abandoned_steps_are_required_until_the_new_line_has_as_many() -> None:
    oracle = Oracle(WORLD, keep=2)
    live(oracle, 1, None, 1, 2, 3)
    live(oracle, 2, Point(1, 2), 3)
    assert oracle.required() == points(1, 2, 3) | points(2, 3)
    live(oracle, 3, Point(2, 3), 4)
    assert oracle.required() == points(2, 3) | points(3, 4)


def test_what_retention_may_once_have_deleted_is_never_required_again() -> None:
    oracle = Oracle(WORLD, keep=2)
    live(oracle, 1, None, 1, 2, 3)
    live(oracle, 2, Point(1, 2))
    assert Point(1, 1) not in oracle.required()


def test_a_save_that_failed_counts_for_nothing() -> None:
    oracle = Oracle(WORLD, keep=2)
    live(oracle, 1, None, 1, 2)
    for step in (3, 4):
        oracle.heed(1, {"kind": "begun", "step": step})
        oracle.heed(1, {"kind": "failed", "step": step, "message": "write: No space left"})
    assert oracle.floor() == Point(1, 2)
    live(oracle, 2, Point(1, 2), 3)
    assert oracle.required() == points(1, 2) | points(2, 3)


def test_an_overtaken_life_may_acknowledge_what_its_successor_went_on_from() -> None:
    oracle = Oracle(WORLD, keep=2)
    live(oracle, 1, None, 1)
    oracle.heed(1, {"kind": "begun", "step": 2})
    oracle.heed(1, {"kind": "begun", "step": 3})
    live(oracle, 2, Point(1, 2), 3)
    oracle.heed(1, {"kind": "durable", "step": 2})
    with pytest.raises(ViolationError, match="had taken the run over"):
        oracle.heed(1, {"kind": "durable", "step": 3})
