"""Objects that another object of the state holds, and that its state_dict() leaves out."""

from typing import Any

import pytest
import torch
from testkit import assert_same, data_file, header, save
from torch import nn
from torch.optim import lr_scheduler

import deepfreeze as df


class Outer(torch.optim.Optimizer):
    """As SAM and Lookahead hold the optimizer that does the work."""

    def __init__(self, parameters: Any, base: Any, **options: Any) -> None:
        super().__init__(parameters, options)
        self.base_optimizer = base(self.param_groups, **options)
        self.param_groups = self.base_optimizer.param_groups

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.base_optimizer.step()


class OwnFormat(Outer):
    """Gives its inner optimizer's state itself."""

    def state_dict(self) -> dict[str, Any]:
        return {"base": self.base_optimizer.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.base_optimizer.load_state_dict(state_dict["base"])


class Trainer:
    """Gives only its epoch."""

    def __init__(self, **members: Any) -> None:
        self.epoch = 0
        vars(self).update(members)

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch = state["epoch"]


def make(kind: Any = Outer, base: Any = torch.optim.SGD, **more: Any) -> dict[str, Any]:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    return {"m": model, "o": kind(model.parameters(), base, lr=0.1, **more)}


def train(state: dict[str, Any], steps: int) -> None:
    for _ in range(steps):
        state["o"].zero_grad()
        state["m"](torch.ones(3, 4)).square().mean().backward()
        state["o"].step()


def keys_of(ckpt: df.Checkpointer, step: int) -> set[str]:
    return header(data_file(ckpt.path, step)).keys() - {"__metadata__"}


@pytest.mark.parametrize("kind", [Outer, OwnFormat])
def test_an_optimizer_within_an_optimizer(ckpt: df.Checkpointer, kind: Any) -> None:
    saved, live = make(kind, momentum=0.9), make(kind, momentum=0.9)
    save(ckpt, 1, saved)  # with no state yet
    train(saved, 3)
    save(ckpt, 3, saved)
    assert sum("momentum_buffer" in key for key in keys_of(ckpt, 3)) == 2  # not twice
    ckpt.restore(live)
    for state in (saved, live):
        train(state, 2)
    assert_same(live["m"].weight, saved["m"].weight)


def test_an_optimizer_within_two_others(ckpt: df.Checkpointer) -> None:
    def twice(parameters: Any, base: Any, **options: Any) -> Any:
        return Outer(parameters, lambda p, **o: Outer(p, base, **o), **options)

    saved, live = make(twice, momentum=0.9), make(twice, momentum=0.9)
    train(saved, 3)
    save(ckpt, 3, saved)
    ckpt.restore(live)
    for state in (saved, live):
        train(state, 2)
    assert_same(live["m"].weight, saved["m"].weight)


def test_another_class_within_is_refused(ckpt: df.Checkpointer) -> None:
    saved = make(momentum=0.9)
    train(saved, 1)
    save(ckpt, 1, saved)
    with pytest.raises(df.MismatchError, match=r"o\.held\.base_optimizer: stored by torch\.SGD"):
        ckpt.restore(make(base=torch.optim.Adam))


def test_another_class_within_a_state_dict_of_its_own_is_refused(ckpt: df.Checkpointer) -> None:
    saved = make(OwnFormat, momentum=0.9)
    train(saved, 1)
    save(ckpt, 1, saved)
    fault = r"OwnFormat\[torch\.SGD\], but live is OwnFormat\[torch\.Adam\]"
    with pytest.raises(df.MismatchError, match=fault):
        ckpt.restore(make(OwnFormat, torch.optim.Adam))


@pytest.mark.parametrize("chained", [False, True])
def test_another_scheduler_among_several_is_refused(ckpt: df.Checkpointer, chained: bool) -> None:
    def several(last: Any) -> Any:
        optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
        inner = [lr_scheduler.ConstantLR(optimizer), last(optimizer)]
        if chained:
            return lr_scheduler.ChainedScheduler(inner, optimizer)
        return lr_scheduler.SequentialLR(optimizer, inner, [2])

    save(ckpt, 1, {"s": several(lambda o: lr_scheduler.ExponentialLR(o, 0.5))})
    with pytest.raises(df.MismatchError, match=r"torch\.ExponentialLR\], .* torch\.StepLR\]"):
        ckpt.restore({"s": several(lambda o: lr_scheduler.StepLR(o, 2))})
    assert ckpt.restore({"s": several(lambda o: lr_scheduler.ExponentialLR(o, 0.7))}) == 1


def test_what_the_state_has_elsewhere_is_stored_once(ckpt: df.Checkpointer) -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    state: dict[str, Any] = {
        "t": Trainer(model=model, inner=model.weight, optimizers=[optimizer]),
        "m": nn.Sequential(model),
        "o": optimizer,
        "s": lr_scheduler.StepLR(optimizer, 2),
    }
    save(ckpt, 1, state)
    loaded = ckpt.load(1)
    assert loaded["t"] == {"epoch": 0}
    assert ckpt.restore(state) == 1


def test_all_that_a_trainer_leaves_out(ckpt: df.Checkpointer) -> None:
    def trainer(seed: int) -> Trainer:
        torch.manual_seed(seed)
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        return Trainer(
            model=model,
            optimizers=[optimizer],
            more={"scheduler": lr_scheduler.StepLR(optimizer, 2)},
            scaler=torch.amp.GradScaler("cpu", init_scale=2.0**seed),
            generator=torch.Generator().manual_seed(seed),
            loss=nn.MSELoss(),
        )

    saved: Any = trainer(1)
    saved.model(torch.ones(2)).sum().backward()
    saved.optimizers[0].step()
    saved.more["scheduler"].step()
    saved.epoch = 4
    saved.scaler.scale(torch.ones(1))
    save(ckpt, 1, {"t": saved})
    live: Any = trainer(2)
    live.scaler.scale(torch.ones(1))
    ckpt.restore({"t": live})
    assert_same(live.model.weight, saved.model.weight)
    buffers = [t.optimizers[0].state[t.model.weight]["momentum_buffer"] for t in (saved, live)]
    assert_same(*buffers)
    assert live.more["scheduler"].last_epoch == 1
    assert live.scaler.get_scale() == 2.0
    assert live.epoch == 4
    assert_same(live.generator.get_state(), saved.generator.get_state())
    held = ckpt.load(1)["t"]["held"]
    assert held.keys() == {"model", "optimizers.0", "more.scheduler", "scaler", "generator"}


def test_a_held_object_that_the_live_one_lacks(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"t": Trainer(model=nn.Linear(2, 2))})
    live = Trainer()
    live.epoch = 3
    with pytest.raises(df.MismatchError, match=r"t\.held\.model: .* Trainer lacks"):
        ckpt.restore({"t": live})
    assert live.epoch == 3
    save(ckpt, 2, {"t": live})
    with pytest.raises(df.MismatchError, match=r"missing in the checkpoint: t\.held\.model"):
        ckpt.restore({"t": Trainer(model=nn.Linear(2, 2))})


def test_a_held_object_whose_holder_became_an_optimizer_of_torch(ckpt: df.Checkpointer) -> None:
    saved = make()
    save(ckpt, 1, saved)
    live = torch.optim.SGD(saved["m"].parameters(), lr=0.1)
    with pytest.raises(df.MismatchError, match=r"o\.held\.base_optimizer: .* torch\.SGD lacks"):
        ckpt.restore({"m": saved["m"], "o": live})


class Average:
    """Holds a copy of a module, and gives its tensors: themselves, or copies of them."""

    def __init__(self, module: nn.Module, *, copies: bool) -> None:
        self.module = module
        self.copies = copies

    def state_dict(self) -> dict[str, Any]:
        found = self.module.state_dict()
        return {"ema": {k: v.clone() for k, v in found.items()} if self.copies else found}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.module.load_state_dict(state["ema"])


@pytest.mark.parametrize("copies", [False, True])
def test_what_its_state_dict_gives_is_not_stored_twice(ckpt: df.Checkpointer, copies: bool) -> None:
    save(ckpt, 1, {"ema": Average(nn.Linear(2, 2), copies=copies)})
    assert keys_of(ckpt, 1) == {"ema.ema.weight", "ema.ema.bias"}


class Warmup(lr_scheduler.LRScheduler):
    """Leaves out the scheduler that comes after it."""

    def __init__(self, optimizer: Any) -> None:
        self.after = lr_scheduler.ExponentialLR(optimizer, 0.5)
        super().__init__(optimizer)

    def get_lr(self) -> list[float]:  # type: ignore[override]
        return [0.1 for _ in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        return {"last_epoch": self.last_epoch}


def test_a_scheduler_within_a_scheduler(ckpt: df.Checkpointer) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    saved = Warmup(optimizer)
    optimizer.step()
    saved.after.step()
    save(ckpt, 1, {"s": saved})
    live = Warmup(torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1))
    ckpt.restore({"s": live})
    assert live.after.last_epoch == 1
    assert ckpt.load(1)["s"]["held"].keys() == {"after"}


class Flat(Average):
    """Gives the same tensors under names of its own."""

    def state_dict(self) -> dict[str, Any]:
        return {f"ema_{name}": tensor for name, tensor in self.module.state_dict().items()}


def test_tensors_that_it_gives_under_other_names_are_not_stored_twice(
    ckpt: df.Checkpointer,
) -> None:
    save(ckpt, 1, {"ema": Flat(nn.Linear(2, 2), copies=False)})
    assert keys_of(ckpt, 1) == {"ema.ema_weight", "ema.ema_bias"}


class GivesItself(Outer):
    def state_dict(self) -> dict[str, Any]:
        return torch.optim.Optimizer.state_dict(self)


def test_equal_values_at_the_first_step_say_nothing_of_later_ones(ckpt: df.Checkpointer) -> None:
    state = make(GivesItself, momentum=0.9)
    save(ckpt, 1, state)
    assert not any("held" in key for key in keys_of(ckpt, 1))
    train(state, 1)
    save(ckpt, 2, state)
    assert sum("momentum_buffer" in key for key in keys_of(ckpt, 2)) == 2


def test_the_order_of_the_state_does_not_say_who_holds_it(ckpt: df.Checkpointer) -> None:
    def two() -> tuple[Trainer, Trainer, nn.Module]:
        model = nn.Linear(2, 2)
        return Trainer(model=model), Trainer(model=model), model

    a, b, model = two()
    save(ckpt, 1, {"b": b, "a": a})
    a, b, live = two()
    ckpt.restore({"a": a, "b": b})
    assert_same(live.weight, model.weight)


class Draws(Trainer):
    """Its loading draws from a generator that another object has."""

    source: torch.Generator

    def load_state_dict(self, state: dict[str, Any]) -> None:
        torch.rand(1, generator=self.source)
        super().load_state_dict(state)


def test_generators_are_restored_last_and_global_ones_are_not_held(ckpt: df.Checkpointer) -> None:
    def made(seed: int) -> dict[str, Any]:
        own = torch.Generator().manual_seed(seed)
        return {"a": Trainer(own=own, common=torch.default_generator), "b": Draws(source=own)}

    saved, live = made(1), made(2)
    save(ckpt, 1, saved)
    assert ckpt.load(1)["a"]["held"].keys() == {"own"}
    ckpt.restore(live)
    assert_same(live["a"].own.get_state(), saved["a"].own.get_state())
