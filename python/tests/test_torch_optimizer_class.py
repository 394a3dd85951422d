"""Another class of optimizer, scheduler or object than was saved: refused, or told about."""

import inspect
import itertools
import warnings
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from testkit import assert_same, save
from torch import nn
from torch.optim import lr_scheduler

import deepfreeze as df
from deepfreeze.frameworks.class_names import class_name, is_same_class

Make = Callable[[Any], torch.optim.Optimizer]


def trained(make: Make, steps: int = 1) -> dict[str, Any]:
    torch.manual_seed(0)
    model = nn.Linear(2, 2)
    optimizer = make(model.parameters())
    for _ in range(steps):
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, 0.3)
        optimizer.step()
    return {"m": model, "o": optimizer}


def go_on(state: dict[str, Any]) -> None:
    for parameter in state["m"].parameters():
        parameter.grad = torch.full_like(parameter, 0.7)
    state["o"].step()


class EmptyAdam(torch.optim.Adam):
    """Adds nothing but other defaults."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.5)


class ClippingAdam(torch.optim.Adam):
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            nn.utils.clip_grad_norm_(group["params"], 1.0)
        return super().step(closure)


class CountingAdam(torch.optim.Adam):
    def step(self, closure: Any = None) -> Any:
        for parameter in self.param_groups[0]["params"]:
            if self.state[parameter]:
                self.state[parameter]["count"] += 1
        super().step(closure)
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter].setdefault("count", 1)


SGD: Make = lambda p: torch.optim.SGD(p, lr=0.25, momentum=0.9, weight_decay=0.125)  # noqa: E731


def test_another_class_is_refused_and_nothing_is_changed(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, trained(SGD))
    live = trained(torch.optim.Adam, steps=0)
    before = live["m"].weight.detach().clone()
    with pytest.raises(df.MismatchError, match=r"o: stored by torch\.SGD, .* torch\.Adam.*strict="):
        ckpt.restore(live)
    assert_same(live["m"].weight, before)
    assert live["o"].param_groups[0]["lr"] == 0.001


@pytest.mark.parametrize("used", [0, 1], ids=["fresh", "used"])
def test_without_strict_unlike_state_stays_as_it_is(ckpt: df.Checkpointer, used: int) -> None:
    saved = trained(SGD)
    save(ckpt, 1, saved)
    live = trained(torch.optim.Adam, steps=used)
    assert ckpt.restore(live, strict=False) == 1
    group = live["o"].param_groups[0]
    assert (group["lr"], group["weight_decay"], group["betas"]) == (0.25, 0.125, (0.9, 0.999))
    assert "momentum" not in group
    entries = {key for state in live["o"].state.values() for key in state}
    assert entries == ({"step", "exp_avg", "exp_avg_sq"} if used else set())
    assert_same(live["m"].weight, saved["m"].weight)
    assert ckpt.last_restore is not None
    assert "torch.SGD" in ckpt.last_restore.mismatched["o"]
    go_on(live)


@pytest.mark.parametrize(
    ("one", "other"), list(itertools.permutations([torch.optim.Adam, torch.optim.AdamW], 2))
)
def test_adam_and_adamw_have_their_moments_alike(
    ckpt: df.Checkpointer, one: Make, other: Make
) -> None:
    saved = trained(one, steps=2)
    saved["o"].param_groups[0]["betas"] = (0.5, 0.75)
    save(ckpt, 1, saved)
    live = trained(other, steps=0)
    decoupled = live["o"].param_groups[0]["decoupled_weight_decay"]
    with pytest.raises(df.MismatchError, match="AdamW"):
        ckpt.restore(live)
    ckpt.restore(live, strict=False)
    for name in ("step", "exp_avg", "exp_avg_sq"):
        assert_same(
            live["o"].state[live["m"].weight][name], saved["o"].state[saved["m"].weight][name]
        )
    group = live["o"].param_groups[0]
    assert group["betas"] == (0.5, 0.75)
    assert group["decoupled_weight_decay"] is decoupled
    go_on(live)


def test_a_step_that_torch_has_wrapped_is_nothing_of_its_own(ckpt: df.Checkpointer) -> None:
    """As in the first class with that step() of which a process makes an optimizer."""

    class Wrapped(torch.optim.Adam):
        step = torch.optim.Optimizer.profile_hook_step(inspect.unwrap(torch.optim.Adam.step))

    save(ckpt, 1, trained(torch.optim.Adam))
    ckpt.restore(trained(Wrapped, steps=0))


def test_a_subclass_that_adds_nothing_is_its_base(ckpt: df.Checkpointer) -> None:
    saved = trained(torch.optim.Adam)
    save(ckpt, 1, saved)
    live = trained(EmptyAdam, steps=0)
    ckpt.restore(live)
    assert live["o"].param_groups[0]["lr"] == 0.001
    save(ckpt, 2, live)
    assert ckpt.restore(trained(torch.optim.Adam, steps=0)) == 2


@pytest.mark.parametrize(("make", "takes"), [(ClippingAdam, True), (CountingAdam, False)])
def test_a_subclass_with_a_step_of_its_own(ckpt: df.Checkpointer, make: Make, takes: bool) -> None:
    save(ckpt, 1, trained(torch.optim.Adam))
    live = trained(make, steps=0)
    name = type(live["o"]).__name__
    with pytest.raises(df.MismatchError, match=rf"torch\.Adam, but live is {name}"):
        ckpt.restore(live)
    ckpt.restore(live, strict=False)
    assert bool(live["o"].state) is takes
    go_on(live)


def test_a_pattern_for_a_part_of_it_does_not_hide_the_class(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, trained(SGD))
    live = trained(torch.optim.Adam, steps=0)
    with pytest.raises(df.MismatchError, match=r"torch\.SGD"):
        ckpt.restore(live, keys=["o.state.*"])
    ckpt.restore(live, keys=["m.*"])


def test_an_optimizer_with_a_format_of_its_own(ckpt: df.Checkpointer) -> None:
    def make(kind: type[torch.optim.Optimizer]) -> Make:
        class Own(kind):  # type: ignore[valid-type, misc]
            def load_state_dict(self, state_dict: dict[str, Any]) -> None:
                super().load_state_dict(state_dict)

        Own.__qualname__ = f"Own{kind.__name__}"
        return Own

    save(ckpt, 1, trained(make(torch.optim.Adagrad)))
    with pytest.raises(df.MismatchError, match="OwnAdagrad, but live is OwnRprop"):
        ckpt.restore(trained(make(torch.optim.Rprop), steps=0))


def test_a_checkpoint_that_names_no_class_restores_as_before(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deepfreeze.restoring import restorer as reading

    def without_class(*of: Any) -> Any:
        def strip(node: Any) -> Any:
            if isinstance(node, dict):
                return {key: strip(item) for key, item in node.items() if key != "class"}
            return [strip(item) for item in node] if isinstance(node, list) else node

        return strip(real(*of))

    state = trained(SGD)
    scheduler = lr_scheduler.StepLR(state["o"], 3)
    save(ckpt, 1, {**state, "s": scheduler})
    real = reading._tree_of
    monkeypatch.setattr(reading, "_tree_of", without_class)
    live = trained(lambda p: torch.optim.RMSprop(p, momentum=0.9), steps=0)
    ckpt.restore({**live, "s": lr_scheduler.ExponentialLR(live["o"], 0.5)})
    assert live["o"].param_groups[0]["momentum"] == 0.9
    assert "momentum_buffer" in live["o"].state[live["m"].weight]


SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2, gamma=0.5),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 5]),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.9**step),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda step: 0.9),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.75),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 9),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.3, total_steps=30),
    "ReduceLROnPlateau": lr_scheduler.ReduceLROnPlateau,
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.9)], [2]
    ),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_another_scheduler(ckpt: df.Checkpointer, name: str) -> None:
    saved = SCHEDULERS[name](SGD([nn.Parameter(torch.ones(1))]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the optimizer has made no step
        for step in range(3):
            saved.step(*([step] if name == "ReduceLROnPlateau" else []))
    save(ckpt, 1, {"s": saved})
    for other, make in SCHEDULERS.items():
        live = make(SGD([nn.Parameter(torch.ones(1))]))
        before = {key: repr(value) for key, value in live.state_dict().items()}
        if other == name:
            ckpt.restore({"s": live})
            assert live.last_epoch == 3
            continue
        with pytest.raises(df.MismatchError, match=rf"torch\.{name}.* torch\.{other}"):
            ckpt.restore({"s": live})
        assert {key: repr(value) for key, value in live.state_dict().items()} == before
        ckpt.restore({"s": live}, strict=False)
        assert live.last_epoch == (0 if other == "SequentialLR" else 3)
        own = before.keys() - {"last_epoch", "base_lrs", "_step_count", "_last_lr"}
        assert live.state_dict().keys() >= own
        assert {key: repr(live.state_dict()[key]) for key in own} == {k: before[k] for k in own}
        assert ckpt.last_restore is not None
        assert f"torch.{name}" in ckpt.last_restore.mismatched["s"]


class Trainer:
    def __init__(self) -> None:
        self.epoch = 0

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch = state["epoch"]


class Coach(Trainer):
    """The same, renamed, with one more entry."""

    coached = 0

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "coached": self.coached}


class Plumber(Trainer):
    def state_dict(self) -> dict[str, Any]:
        return {"pipes": self.epoch}


def test_a_renamed_class_has_a_way_out(ckpt: df.Checkpointer) -> None:
    trainer, live = Trainer(), Coach()
    trainer.epoch = 7
    save(ckpt, 1, {"t": trainer})
    with pytest.raises(df.MismatchError, match=r"Trainer, but live is Coach, .*strict=False"):
        ckpt.restore({"t": live})
    assert live.epoch == 0
    ckpt.restore({"t": live}, keys=["t"], strict=False)
    assert live.epoch == 7
    other = Plumber()
    ckpt.restore({"t": other}, strict=False)
    assert other.epoch == 0
    assert ckpt.last_restore is not None
    assert "stays as it is" in ckpt.last_restore.mismatched["t"]


def test_scalers_of_all_names_are_one(ckpt: df.Checkpointer) -> None:
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated, and no CUDA
        disabled: Any = torch.cuda.amp.GradScaler()
    sharded = object.__new__(ShardedGradScaler)
    names = {class_name(scaler), class_name(disabled), class_name(sharded)}
    assert names == {"torch.GradScaler"}
    save(ckpt, 1, {"s": scaler})
    ckpt.restore({"s": disabled})
    live = torch.amp.GradScaler("cpu")
    ckpt.restore({"s": live})
    assert live.get_scale() == 64.0


def test_names_survive_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Trainer()
    assert class_name(mine) == "Trainer"
    monkeypatch.setattr(Trainer, "__module__", "__main__")
    assert class_name(mine) == "Trainer"
    optimizer = torch.optim.Adam([torch.zeros(1)])
    monkeypatch.setattr(torch.optim.Adam, "__module__", "torch.optim")
    assert class_name(optimizer) == "torch.Adam"
    assert is_same_class("Trainer", "mylab.Trainer")
    assert not is_same_class("mylab.Lion", "otherlab.Lion")
    assert not is_same_class("Adam", "torch.Adam")
    assert is_same_class("Outer.Inner", "Outer.Inner")
    assert not is_same_class("Outer.Inner", "Inner")


def test_lightnings_wrapper_goes_by_the_optimizer_within(ckpt: df.Checkpointer) -> None:
    """It is made of a class of its own for each, and shares all attributes."""

    def wrapped(parameters: Any) -> torch.optim.Optimizer:
        inner = torch.optim.Adam(parameters)
        outer: Any = object.__new__(type("LightningAdam", (_Wrapper, torch.optim.Adam), {}))
        vars(outer).update(vars(inner), _optimizer=inner)
        return cast(torch.optim.Optimizer, outer)

    save(ckpt, 1, trained(torch.optim.Adam))
    live = trained(wrapped, steps=0)
    ckpt.restore(live)
    assert len(live["o"].state) == 2
    with pytest.raises(df.MismatchError, match=r"torch\.Adam, but live is torch\.SGD"):
        ckpt.restore(trained(SGD, steps=0))


class _Wrapper:
    def step(self, closure: Any = None) -> Any:
        return vars(self)["_optimizer"].step(closure)


@pytest.mark.parametrize(
    ("wrapper", "attribute"),
    [("AcceleratedOptimizer", "optimizer"), ("AcceleratedScheduler", "scheduler")],
)
def test_accelerates_wrappers_go_by_what_is_within(wrapper: str, attribute: str) -> None:
    kind = type(wrapper, (), {"__module__": "accelerate.wrappers", "step": lambda self: None})
    outer = kind()
    setattr(outer, attribute, lr_scheduler.StepLR(SGD([torch.zeros(1)]), 2))
    assert class_name(outer) == "torch.StepLR"
