"""The times that count as the cost of a save, and those that do not."""

from types import SimpleNamespace
from typing import Any

import pytest

import deepfreeze as df
from deepfreeze.interval.save_cost import Beside, SaveCost, slowdown_of
from deepfreeze.interval.step_meter import StepMeter


def status(durable: float = 0.0, fence: float = 0.0) -> Any:
    nothing = dict.fromkeys(df.SaveStatus.__dataclass_fields__, 0)
    return SimpleNamespace(
        **{
            **nothing,
            "torn": (),
            "diverged": (),
            "tiers": (),
            "local_seconds": durable,
            "fence_seconds": fence,
        }
    )


class Loop:
    """A meter, and a clock for it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.meter = StepMeter(lambda: self.now)

    def step(self, *seconds: float) -> bool:
        measured = False
        for each in seconds:
            self.now += each
            measured = self.meter.stepped()
        return measured

    def save(self, inside: float = 0.5, durable: float = 100.0) -> df.SaveHandle:
        """It is durable at the next step()."""
        native: Any = SimpleNamespace(status=lambda: status(durable))
        handle = df.SaveHandle(1, native)
        self.meter.saving()
        self.now += inside
        self.meter.saved(handle)
        handle.local.set_result(1)
        return handle

    @property
    def quiet(self) -> list[float]:
        return list(self.meter._quiet)

    @property
    def saves(self) -> list[SaveCost]:
        return list(self.meter._saves)


def warm() -> Loop:
    """A loop past the steps that are left out: steps of one second, the first save done."""
    loop = Loop()
    loop.step(*[1.0] * 8)
    loop.save()
    loop.step(1.0)
    assert loop.quiet == [1.0] * 5
    assert loop.saves == []
    return loop


def test_the_first_steps_are_left_out() -> None:
    loop = Loop()
    loop.step(90, 60, 30, 1, 2)
    assert loop.quiet == [1, 2]


def test_an_interruption_leaves_no_less_of_them_out() -> None:
    loop = Loop()
    loop.meter.interrupted()
    loop.step(90, 60, 30, 1, 2)
    assert loop.quiet == [1, 2]


def test_an_interrupted_step_is_left_out() -> None:
    loop = warm()
    loop.meter.interrupted()
    loop.step(500, 1)
    assert loop.quiet == [1.0] * 6
    loop.save()
    loop.meter.interrupted()
    assert not loop.step(500)
    assert not loop.meter.in_flight
    assert loop.saves == []
    loop.save()
    assert loop.step(1)


def test_a_save_is_no_part_of_its_step() -> None:
    loop = warm()
    loop.save(inside=0.5)
    assert loop.step(1.25)
    assert loop.saves == [SaveCost(0.5, 0.25, paused=False)]
    assert not loop.step(1)
    assert loop.quiet == [1.0] * 6


def test_an_early_capture_belongs_to_its_save_alone() -> None:
    loop = warm()
    loop.meter.armed()
    loop.step(1.5)
    loop.save()
    loop.step(1.25)
    assert loop.saves[-1].slowdown_seconds == 0.75
    loop.meter.armed()
    loop.step(1.5, 1)  # but the save did not come
    loop.save()
    loop.step(1.25)
    assert loop.saves[-1].slowdown_seconds == 0.25
    assert 1.5 not in loop.quiet


def test_nothing_is_chosen_before_enough_is_measured() -> None:
    loop = Loop()
    loop.step(*[1.0] * 3)
    for _ in range(4):
        loop.save()
        assert not loop.step(1)  # without a quiet step nothing can be compared
    loop.step(1)
    for _ in range(3):
        loop.save()
        assert loop.step(1)
    assert loop.meter.cost() is None
    loop.step(1, 1, 1)
    assert loop.meter.cost() is None
    loop.step(1)
    assert loop.meter.cost() is not None


def cost(steps: list[float], durable: float, early: float | None = None) -> SaveCost:
    handle: Any = None
    save = Beside(handle, 0.0, early, counts=True)
    for seconds in steps:
        save.add(seconds, status())
    return save.cost(status(durable), quiet=1.0)


@pytest.mark.parametrize(
    ("steps", "durable", "slower", "paused"),
    [
        ([1.5, 1.1, 1.1, 1.1], 10, 0.8, False),
        ([1.5, 1.1, 1.1, 30, 1.1], 10, 0.9, False),
        ([30, 1.1, 1.1], 2.5, 2.5, True),
        ([1.4], 0.25, 0.25, False),  # by chance: less than a step too much
        ([2.3], 0.25, 0.25, True),
        ([0.9], 0.25, -0.1, False),
    ],
)
def test_the_slow_down_of_one_save(
    steps: list[float], durable: float, slower: float, paused: bool
) -> None:
    found = cost(steps, durable)
    assert found.slowdown_seconds == pytest.approx(slower)
    assert found.paused == paused


def test_an_early_capture_may_cost_one_step_more() -> None:
    assert cost([1.5], 0.5, early=1.75).slowdown_seconds == pytest.approx(1.25)
    assert cost([1.5], 0.5, early=90).slowdown_seconds == pytest.approx(1.5)


def test_pauses_and_chance_are_left_out() -> None:
    def saves(*seconds: float, paused: bool = False) -> list[SaveCost]:
        return [SaveCost(0, each, paused) for each in seconds]

    assert slowdown_of(saves(0.1, 0.2, 0.3)) == 0.2
    assert slowdown_of(saves(0.1) + saves(5, 6, 7, paused=True)) == 0.1
    assert slowdown_of(saves(5, 6, 7, paused=True)) == 6
    assert slowdown_of(saves(-0.3, -0.2, 0.1)) == 0


def test_saves_without_a_rest_need_one() -> None:
    def rests(loop: Loop, *steps: float) -> bool:
        loop.step(*steps)
        return not loop.meter.needs_quiet

    loop = warm()
    loop.step(1, 1, 1, 1, 1)
    for _ in range(100):
        assert not loop.meter.needs_quiet
        loop.meter.armed()  # nor is a step quiet that is captured
        loop.step(1)
    assert loop.meter.needs_quiet
    assert not rests(loop, 1, 1, 1, 1)
    loop.save()
    assert not rests(loop, 1, 1, 1, 1, 1)
    assert rests(loop, 1)
