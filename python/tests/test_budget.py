"""The interval that measures its own cost, in simulated trainings: no clock but the test's."""

import logging
import math
import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from testkit import save

import deepfreeze as df
from deepfreeze.interval.arithmetic import Cost, Target, choose, daly_seconds
from deepfreeze.interval.budget import START_STEPS, BudgetPolicy, policy_of
from deepfreeze.interval.policy import SavePolicy
from deepfreeze.interval.step_meter import SAVES_MIN

HOUR = 3600.0


@dataclass(frozen=True)
class Costs:
    """The costs of each save, in seconds; `slower`: how much longer a step beside it takes."""

    stall: float = 0.0512
    fence: float = 0.02
    durable: float = 1.0
    slower: float = 0.3
    early: float = 0.0  # that the step before takes longer, captured inside backward


@dataclass(frozen=True)
class Workload:
    step: float = 0.25
    noise: float = 0.0
    pause_every: int = 0  # steps between two evaluations
    pause_after_save: bool = False
    pause: float = 30.0


@dataclass
class Training:
    """A simulated loop that calls the policy as a Checkpointer does, and adds up its costs."""

    rule: Any
    costs: Costs = field(default_factory=Costs)
    workload: Workload = field(default_factory=Workload)
    now: float = 1000.0
    step: int = 0
    own: float = 0.0  # seconds of training without saves and pauses
    added: float = 0.0  # by saves
    saves: list[int] = field(default_factory=list)
    handle: df.SaveHandle | None = None
    fails: bool = False
    armed: bool = False

    def __post_init__(self) -> None:
        self.policy = policy_of(self.rule, lambda: self.now)
        self._random = random.Random(5)
        self._durable_at = -math.inf
        self._fence = 0.0
        self._status = SimpleNamespace()

    def run(self, steps: int) -> "Training":
        for _ in range(steps):
            self._iterate()
            self._complete()
            self.step += 1
            self.policy.stepped(self.step)
            due = self.policy.due(self.step)
            if due:
                self._save()
            self._arm()
            if self._pauses(due):
                self.now += self.workload.pause
        return self

    def run_until_chosen(self) -> None:
        for _ in range(1000):
            if self.policy.choice is not None:  # type: ignore[attr-defined]
                return
            self.run(1)
        raise AssertionError("nothing was chosen")

    def tail(self, steps: int) -> float:
        """The share of saves in the next `steps`, as a fraction."""
        own, added = self.own, self.added
        self.run(steps)
        return (self.added - added) / (self.own - own)

    def _iterate(self) -> None:
        mine = self.workload.step * (1 + self.workload.noise * self._random.uniform(-1, 1))
        beside = min(mine, max(0.0, self._durable_at - self.now))
        extra = beside * self.costs.slower + self._fence + self.armed * self.costs.early
        if self._fence:
            self._status.fence_seconds, self._fence = self._fence, 0.0
        self._spend(mine, extra)
        self.armed = False

    def _spend(self, mine: float, extra: float) -> None:
        self.now += mine + extra
        self.own += mine
        self.added += extra

    def _complete(self) -> None:
        handle = self.handle
        if handle is None or handle.local.done() or self.now < self._durable_at:
            return
        self._status.local_seconds = self.costs.durable
        if self.fails:
            handle.fail(OSError("no space"))
        else:
            handle.local.set_result(handle.step)

    def _save(self) -> None:
        self.policy.saving()
        setup = 20.0 if not self.saves else 1.0
        self._spend(0, self.costs.stall * setup)
        self._status = SimpleNamespace(
            torn=(), diverged=(), tiers=(), fence_seconds=0.0, local_seconds=0.0
        )
        native: Any = SimpleNamespace(status=lambda status=self._status: filled(status))
        self.handle = df.SaveHandle(self.step, native)
        self._durable_at, self._fence = self.now + self.costs.durable, self.costs.fence
        self.saves.append(self.step)
        self.policy.saved(self.handle)

    def _arm(self) -> None:
        if self.costs.early and self.policy.due(self.step + 1):
            self.armed = True
            self.policy.armed()

    def _pauses(self, saved: bool) -> bool:
        if saved and self.workload.pause_after_save:
            return True
        return self.workload.pause_every > 0 and self.step % self.workload.pause_every == 0

    @property
    def choice(self) -> Any:
        assert isinstance(self.policy, BudgetPolicy)
        assert self.policy.choice is not None
        return self.policy.choice


def filled(status: SimpleNamespace) -> SimpleNamespace:
    nothing = dict.fromkeys((each for each in df.SaveStatus.__dataclass_fields__), 0)
    return SimpleNamespace(**{**nothing, **vars(status)})


def saves_until_measured() -> int:
    return START_STEPS * (1 + SAVES_MIN)


# Formulas


def test_young_and_daly() -> None:
    # Young's own example has a save of 2 minutes and failures a day apart: some 2.4 hours.
    young = math.sqrt(2 * 120 * 24 * HOUR)
    assert daly_seconds(120, 24 * HOUR) == pytest.approx(young, rel=0.02)
    ratio = 300 / (2 * 6 * HOUR)  # Daly's figure 4: a save of 5 minutes, 6 hours: 57 minutes
    terms = 1 + math.sqrt(ratio) / 3 + ratio / 9
    assert daly_seconds(300, 6 * HOUR) == math.sqrt(2 * 300 * 6 * HOUR) * terms - 300
    assert daly_seconds(300, 6 * HOUR) / 60 == pytest.approx(57, abs=0.5)
    assert daly_seconds(300, 24 * HOUR) / 60 == pytest.approx(117, abs=0.5)  # figure 3
    assert daly_seconds(5 * 60, 15 * 60) / 60 == pytest.approx(9.1, abs=0.05)  # figure 5
    assert daly_seconds(200, 100) == daly_seconds(500, 100) == 100
    assert daly_seconds(0, 100) == 0


@given(save=st.floats(1e-6, 1e3), mtbf=st.floats(1, 1e7))
def test_dalys_interval_loses_least(save: float, mtbf: float) -> None:
    def lost(interval: float) -> float:  # Daly's complete model, per second of training
        return math.expm1((interval + save) / mtbf) / interval * mtbf

    best = daly_seconds(save, mtbf)
    if save < mtbf / 2:
        assert lost(best) <= min(lost(0.8 * best), lost(1.25 * best)) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("target", "steps", "decided_by"),
    [
        (Target(0.02, None), 100, "the budget"),
        (Target(None, 900.0), 59, "Young/Daly"),
        (Target(0.02, 900.0), 100, "the budget"),
        (Target(0.5, 900.0), 59, "Young/Daly"),
        (Target(0.999, None), 3, "the budget"),
    ],
)
def test_the_budget_caps_what_failures_ask_for(target: Target, steps: int, decided_by: str) -> None:
    chosen = choose(Cost(1.0, 0.5, 1.5), target)
    assert (chosen.steps, chosen.decided_by) == (steps, decided_by)


@given(
    step=st.floats(1e-6, 100), save=st.floats(0, 1000),
    overhead=st.floats(1e-300, 1, exclude_max=True), mtbf=st.none() | st.floats(1e-3, 1e9),
)  # fmt: skip
def test_whatever_the_cost_the_budget_is_kept(
    step: float, save: float, overhead: float, mtbf: float | None
) -> None:
    chosen = choose(Cost(step, save, 0.0), Target(overhead, mtbf))
    assert chosen.steps >= 1
    if chosen.steps < 1 << 53:
        assert chosen.overhead <= overhead * (1 + 1e-9)
        assert choose(Cost(step, 2 * save, 0.0), Target(overhead, mtbf)).steps >= chosen.steps


# The policy


def test_it_starts_safely_and_then_keeps_the_budget() -> None:
    training = Training(df.every(overhead=0.02))
    training.run(saves_until_measured())
    assert training.saves == [11, 22, 33, 44]
    assert "until 3 saves after the first are measured for overhead=0.02" in str(training.policy)
    training.run(START_STEPS)
    cost = training.choice.cost
    assert cost.step_seconds == pytest.approx(0.25)
    assert cost.blocked_seconds == pytest.approx(0.0712)  # the first one's 1.044 is not in it
    assert cost.slowdown_seconds == pytest.approx(4 * 0.3 * 0.25)  # the last in part, taken whole
    assert training.choice.steps == math.ceil(0.3712 / 0.02 / 0.25)
    assert training.tail(20 * training.choice.steps) <= 0.02


costs = st.builds(
    Costs,
    stall=st.floats(0.001, 0.5),
    fence=st.floats(0, 0.5),
    durable=st.floats(0.01, 20),
    slower=st.floats(0, 1),
)


@settings(deadline=None, max_examples=40)
@given(costs=costs, overhead=st.floats(0.02, 0.3))
def test_the_overhead_ends_within_the_budget(costs: Costs, overhead: float) -> None:
    training = Training(df.every(overhead=overhead), costs)
    training.run_until_chosen()
    training.run(SAVES_MIN * training.choice.steps)
    assert training.tail(5 * training.choice.steps) <= overhead * (1 + 1e-6)
    gaps = [b - a for a, b in zip(training.saves, training.saves[1:], strict=False)]
    assert min(gaps) >= 1


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("slower", [0.1, 0.5])
@pytest.mark.parametrize("pause_every", [0, 100])
def test_noise_and_pauses_spend_little_more(noise: float, slower: float, pause_every: int) -> None:
    workload = Workload(noise=noise, pause_every=pause_every)
    training = Training(df.every(overhead=0.02), Costs(slower=slower), workload)
    training.run(5000)
    assert 0.01 < training.tail(5000) <= 0.02 * (1.02 + noise)


def steps_chosen(costs: Costs, **rule: float) -> int:
    training = Training(df.every(**rule), costs).run(500)
    return int(training.choice.steps)


@pytest.mark.parametrize(
    "rule", [{"overhead": 0.02}, {"mtbf": HOUR}, {"overhead": 0.02, "mtbf": HOUR}]
)
@pytest.mark.parametrize("more", [{"stall": 0.2}, {"fence": 0.2}, {"slower": 0.9}])
def test_the_more_a_save_costs_the_longer_the_interval(
    rule: dict[str, float], more: dict[str, float]
) -> None:
    assert steps_chosen(Costs(**more), **rule) > steps_chosen(Costs(), **rule)


def test_without_a_budget_failures_decide() -> None:
    training = Training(df.every(mtbf=2 * HOUR)).run(1000)
    assert training.choice.decided_by == "Young/Daly"
    cost = training.choice.cost.save_seconds
    assert training.choice.steps == math.ceil(daly_seconds(cost, 2 * HOUR) / 0.25)


def test_cheap_saves_come_at_every_step_but_for_some_that_show_how_fast_steps_are() -> None:
    cheap = Costs(stall=0.001, fence=0, durable=0.1, slower=0.01)
    training = Training(df.every(overhead=0.02), cheap).run(1000)
    assert training.choice.steps == 1
    assert str(training.policy).startswith("every step (0.25 s), by the budget")
    gaps = [b - a for a, b in zip(training.saves[50:], training.saves[51:], strict=False)]
    assert sorted(set(gaps)) == [1, 6]
    assert 8 <= gaps.count(6) <= 9
    training.workload = Workload(step=0.5)  # twice as slow, and not because of saves
    training.run(500)
    assert training.choice.cost.step_seconds == 0.5
    assert training.choice.cost.slowdown_seconds < 0.01


def test_no_save_while_one_is_in_flight() -> None:
    slow = Costs(stall=0.0001, fence=0, durable=2.1, slower=0)
    training = Training(df.every(overhead=0.2), slow).run(500)
    assert training.choice.steps == 1
    gaps = [b - a for a, b in zip(training.saves, training.saves[1:], strict=False)]
    assert min(gaps) == 9  # the step() that finds it durable


@pytest.mark.parametrize("every", [10, 11, 50, 76])
def test_evaluations_are_no_cost_of_saves(every: int) -> None:
    plain = Training(df.every(overhead=0.02)).run(1000).choice
    paused = (
        Training(df.every(overhead=0.02), workload=Workload(pause_every=every)).run(1000).choice
    )
    assert paused.cost.step_seconds == pytest.approx(plain.cost.step_seconds)
    assert paused.steps == plain.steps


def test_an_evaluation_after_each_save_costs_no_more_than_the_save_can() -> None:
    workload = Workload(pause_after_save=True)
    training = Training(df.every(overhead=0.02), Costs(durable=0.5), workload).run(1000)
    assert training.choice.cost.slowdown_seconds == 0.5


def test_a_rare_long_stall_is_paid_for() -> None:
    training = Training(df.every(overhead=0.02)).run(300)
    usual = training.choice.steps
    training.costs = Costs(stall=3.0)
    training.run(usual + 10)
    training.costs = Costs()
    training.run(usual + 10)
    assert training.choice.cost.blocked_seconds == pytest.approx(0.0712 + (3 - 0.0512) / 7)
    assert training.choice.steps > usual


def test_what_is_captured_early_counts() -> None:
    def cost(early: float) -> float:
        training = Training(df.every(overhead=0.02), Costs(early=early)).run(1500)
        return float(training.choice.cost.save_seconds)

    assert cost(0.1) == pytest.approx(cost(1e-12) + 0.1, rel=0.01)


def test_it_follows_a_cost_that_changes() -> None:
    training = Training(df.every(overhead=0.02)).run(2000)
    before = training.choice.steps
    training.costs = Costs(stall=0.5)
    training.run(12 * 2 * before)
    assert training.choice.steps == pytest.approx(before + 0.45 / 0.02 / 0.25, abs=2)


def test_a_save_that_fails_is_not_measured() -> None:
    training = Training(df.every(overhead=0.02)).run(500)
    before = training.choice
    training.fails, training.costs = True, Costs(stall=0.0)
    training.run(5 * before.steps)
    assert training.choice == before
    assert len(training.saves) > 8


def test_after_a_restore_steps_are_counted_anew() -> None:
    training = Training(df.every(overhead=0.02)).run(3 * START_STEPS - 2)
    training.now += 1000
    training.policy.saved()  # as restore() does
    training.run(START_STEPS - 1)
    assert training.saves == [11, 22]
    training.run(1)
    assert training.saves == [11, 22, 42]
    assert max(training.policy._meter._quiet) < 1000  # type: ignore[attr-defined]


def test_a_clock_that_stands_still_ends_no_training() -> None:
    still = Training(df.every(overhead=0.02), Costs(durable=0), Workload(step=0)).run(100)
    assert still.choice.steps == pytest.approx(0.0712 / 0.02 / 1e-9)


def test_it_says_why_once_and_again_when_it_changes_much(caplog: Any) -> None:
    caplog.set_level(logging.INFO, "deepfreeze")
    training = Training(df.every(overhead=0.02, mtbf=300)).run(1500)
    (line,) = caplog.messages
    assert line == f"save {training.policy}"
    assert line == (
        "save every 75 steps (18.8 s), by the budget for overhead=0.02, mtbf=300: a save costs "
        "0.371 s (0.0712 s blocked, 0.3 s of slower steps), a step takes 0.25 s, so saves add 1.98%"
    )
    training.costs = Costs(stall=0.15)
    training.run(1500)
    assert len(caplog.messages) == 1
    training.costs = Costs(stall=0.5)
    training.run(2500)
    assert len(caplog.messages) == 2
    assert training.policy._steps_logged > 1.5 * 75  # type: ignore[attr-defined]
    training.costs = Costs()
    training.run(2500)
    assert len(caplog.messages) == 3


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"overhead": 0}, "overhead=0 is not between 0 and 1"),
        ({"overhead": 1.0}, "overhead=1.0 is not between"),
        ({"overhead": 2}, "0.02 for 2 %"),
        ({"overhead": math.nan}, "overhead=nan"),
        ({"mtbf": 0}, "mtbf=0 is no number of seconds above 0"),
        ({"mtbf": math.inf}, "mtbf=inf"),
        ({"overhead": 0.1, "mtbf": -1}, "mtbf=-1"),
        ({"overhead": 0.1, "steps": 4}, "no steps, no seconds"),
        ({"mtbf": 60, "seconds": 4}, "no steps, no seconds"),
        ({}, "or overhead, mtbf or both"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        df.every(**wrong)


class Recorder(SavePolicy):
    """Saves the second step; notes the calls that it gets."""

    def __init__(self) -> None:
        super().__init__(None)
        self.told: list[Any] = []

    def due(self, step: int) -> bool:
        return step == 2

    def stepped(self, step: int) -> None:
        self.told.append(step)

    def armed(self) -> None:
        self.told.append("armed")

    def saving(self) -> None:
        self.told.append("saving")

    def saved(self, handle: df.SaveHandle | None = None) -> None:
        self.told.append(handle)


def test_a_checkpointer_tells_its_policy_what_it_needs(run: Any) -> None:
    import torch

    state = {"net": torch.nn.Linear(256, 256)}
    optim = torch.optim.SGD(state["net"].parameters())
    with df.Checkpointer(run, profile="latency") as ckpt:
        ckpt._policy = policy = Recorder()
        assert ckpt.policy is policy
        ckpt.attach(optim, mode="after_update")
        handles = [ckpt.step(step, state) for step in (1, 2, 3)]
        assert policy.told == [1, "armed", 2, "saving", handles[1], 3]
        ckpt.restore(state)
        assert policy.told[-1] is None


@pytest.mark.parametrize("attach", [None, "window", "after_update"])
def test_a_real_training_finds_an_interval(run: Any, attach: Any) -> None:
    import torch

    net = torch.nn.Linear(256, 256)
    optim = torch.optim.Adam(net.parameters())
    state = {"net": net, "optim": optim}
    with df.Checkpointer(run, every=df.every(overhead=0.5), profile="latency") as ckpt:
        if attach:
            ckpt.attach(optim, mode=attach)
        save(ckpt, 0, state)
        for step in range(1, 1000):
            optim.zero_grad()
            net(torch.randn(8, 256)).square().sum().backward()
            optim.step()
            handle = ckpt.step(step, state)
            if handle is not None:
                handle.wait()
            if ckpt.policy.choice is not None:  # type: ignore[attr-defined]
                break
        choice = ckpt.policy.choice  # type: ignore[attr-defined]
        assert choice.cost.blocked_seconds > 0
        assert choice.cost.step_seconds > 0
        assert ckpt.steps()[:3] == [0, START_STEPS, 2 * START_STEPS]
