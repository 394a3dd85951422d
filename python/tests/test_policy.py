from typing import Any

import pytest

import deepfreeze as df
from deepfreeze.interval.policy import Keep, SavePolicy


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def due(policy: SavePolicy, steps: range) -> list[int]:
    found = []
    for step in steps:
        if policy.due(step):
            found.append(step)
            policy.saved()
    return found


def test_without_a_rule_each_step_is_saved() -> None:
    assert due(SavePolicy(None), range(1, 4)) == [1, 2, 3]


def test_every_so_many_steps() -> None:
    assert due(SavePolicy(df.every(steps=4)), range(1, 13)) == [4, 8, 12]


def test_every_so_many_seconds_since_the_last_save() -> None:
    clock = Clock()
    policy = SavePolicy(df.every(seconds=10), clock)
    assert not policy.due(1)
    clock.now += 10
    assert policy.due(2)
    policy.saved()
    clock.now += 9.9
    assert not policy.due(3)
    clock.now += 0.1
    assert policy.due(4)


def test_either_rule_is_enough() -> None:
    clock = Clock()
    policy = SavePolicy(df.every(steps=5, seconds=10), clock)
    assert policy.due(5)
    assert not policy.due(6)
    clock.now += 11
    assert policy.due(6)


@pytest.mark.parametrize("wrong", [{}, {"steps": 0}, {"seconds": 0}, {"seconds": float("nan")}])
def test_a_rule_that_makes_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="every"):
        df.every(**wrong)


def test_keep_takes_its_rules() -> None:
    assert df.keep(last=3, every=10, best=("loss", "min")) == Keep(3, 10, ("loss", "min", 1))
    assert df.keep(best=("acc", "max", 2)) == Keep(None, None, ("acc", "max", 2))


@pytest.mark.parametrize(
    "wrong",
    [{"last": 0}, {"every": 0}, {"best": ("loss", "least")}, {"best": ("loss", "min", 0)}],
)
def test_keep_that_makes_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="keep"):
        df.keep(**wrong)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (None, "every step"),
        (df.every(steps=4), "every 4 steps"),
        (df.every(steps=4, seconds=0.5), "every 4 steps or every 0.5 s"),
    ],
)
def test_a_policy_says_when(rule: Any, text: str) -> None:
    assert str(SavePolicy(rule)) == text
