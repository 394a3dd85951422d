"""Optimizers, schedulers, scalers, loaders: training goes on as if it had never stopped."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from testkit import Net, assert_same, data_file, header, save, state_bits
from torch import nn
from torch.optim import lr_scheduler

import deepfreeze as df
from deepfreeze.frameworks.torch import optimizer_match as torch_optimizer_match

Make = Callable[[nn.Module], torch.optim.Optimizer]

OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda m: torch.optim.SGD(m.parameters(), lr=0.1),
    "momentum": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9),
    "adam": lambda m: torch.optim.Adam(m.parameters(), lr=0.01),
    "amsgrad": lambda m: torch.optim.Adam(m.parameters(), lr=0.01, amsgrad=True),
    "adamw_fused": lambda m: torch.optim.AdamW(m.parameters(), lr=0.01, fused=True),
    "adamw_foreach": lambda m: torch.optim.AdamW(m.parameters(), lr=0.01, foreach=True),
    "tensor_lr": lambda m: torch.optim.Adam(m.parameters(), lr=torch.tensor(0.01)),
    "nadam": lambda m: torch.optim.NAdam(m.parameters()),
    "radam": lambda m: torch.optim.RAdam(m.parameters()),
    "adamax": lambda m: torch.optim.Adamax(m.parameters()),
    "adagrad": lambda m: torch.optim.Adagrad(m.parameters()),
    "adadelta": lambda m: torch.optim.Adadelta(m.parameters()),
    "rmsprop": lambda m: torch.optim.RMSprop(m.parameters(), momentum=0.9, centered=True),
    "rprop": lambda m: torch.optim.Rprop(m.parameters()),
    "asgd": lambda m: torch.optim.ASGD(m.parameters()),
    "adafactor": lambda m: torch.optim.Adafactor(m.parameters()),
    "lbfgs": lambda m: torch.optim.LBFGS(m.parameters(), lr=0.1, max_iter=3, history_size=4),
    "groups": lambda m: torch.optim.AdamW(
        [
            {"params": m.conv.parameters(), "lr": 0.1, "betas": (0.8, 0.9)},
            {"params": m.head.parameters(), "lr": torch.tensor(0.02), "weight_decay": 0.0},
        ]
    ),
    "named": lambda m: torch.optim.Adam(m.named_parameters()),
}


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        x = torch.randn(4, 3, 6, 6, generator=generator)

        def closure(x: torch.Tensor = x) -> torch.Tensor:
            optimizer.zero_grad()
            loss: torch.Tensor = model(x).pow(2).mean()
            loss.backward()
            return loss

        optimizer.step(closure)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("fresh", [True, False], ids=["fresh", "used"])
def test_a_resumed_run_is_bit_identical(ckpt: df.Checkpointer, name: str, fresh: bool) -> None:
    torch.manual_seed(0)
    model = Net()
    optimizer = OPTIMIZERS[name](model)
    train(model, optimizer, 3, seed=1)
    save(ckpt, 3, {"model": model, "optim": optimizer})

    torch.manual_seed(1)
    live = Net()
    resumed = OPTIMIZERS[name](live)
    if not fresh:
        train(live, resumed, 2, seed=5)
    assert ckpt.restore({"model": live, "optim": resumed}) == 3
    train(model, optimizer, 3, seed=2)
    train(live, resumed, 3, seed=2)
    assert state_bits(live) == state_bits(model)


def test_state_goes_by_parameter_name(ckpt: df.Checkpointer) -> None:
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer, 1, seed=0)
    save(ckpt, 1, {"model": nn.DataParallel(model), "optim": optimizer})
    assert "optim.state.conv.weight.exp_avg" in header(data_file(ckpt.path, 1))

    live = Net()
    backwards = torch.optim.Adam(reversed(list(live.parameters())))
    ckpt.restore({"model": live, "optim": backwards})
    for name, parameter in model.named_parameters():
        there = backwards.state[live.get_parameter(name)]
        assert_same(there["exp_avg"], optimizer.state[parameter]["exp_avg"])
    train(model, optimizer, 2, seed=1)
    train(live, backwards, 2, seed=1)
    assert state_bits(live) == state_bits(model)


def test_without_a_module_state_goes_by_place(ckpt: df.Checkpointer) -> None:
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
    parameter.sum().backward()
    optimizer.step()
    save(ckpt, 1, {"optim": optimizer})
    assert "optim.state.group0.param0.momentum_buffer" in header(data_file(ckpt.path, 1))
    other = nn.Parameter(torch.ones(2))
    live = torch.optim.SGD([other], lr=0.1, momentum=0.9)
    ckpt.restore({"optim": live})
    assert live.state[other]["momentum_buffer"].tolist() == [1.0, 1.0]


def test_one_optimizer_over_two_modules_with_the_same_names(ckpt: df.Checkpointer) -> None:
    def make() -> tuple[nn.Module, nn.Module, torch.optim.Optimizer]:
        g, d = nn.Linear(2, 2), nn.Linear(2, 2)
        return g, d, torch.optim.Adam([*g.parameters(), *d.parameters()])

    g, d, optimizer = make()
    (g(torch.ones(2)).sum() + 2 * d(torch.ones(2)).sum()).backward()
    optimizer.step()
    save(ckpt, 1, {"g": g, "d": d, "optim": optimizer})
    assert "optim.state.g.weight.exp_avg" in header(data_file(ckpt.path, 1))
    g2, d2, live = make()
    ckpt.restore({"g": g2, "d": d2, "optim": live})
    assert_same(live.state[d2.weight]["exp_avg"], optimizer.state[d.weight]["exp_avg"])


def test_state_keeps_its_saved_dtype(ckpt: df.Checkpointer) -> None:
    def make() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = nn.Linear(3, 3).bfloat16()
        return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    model, optimizer = make()
    for parameter in model.parameters():
        optimizer.state[parameter]["momentum_buffer"] = torch.randn(parameter.shape)
    save(ckpt, 1, {"model": model, "optim": optimizer})
    for used in (False, True):
        live, resumed = make()
        if used:
            live(torch.ones(3, dtype=torch.bfloat16)).sum().backward()
            resumed.step()
        ckpt.restore({"model": live, "optim": resumed})
        for one, other in zip(model.parameters(), live.parameters(), strict=True):
            there = resumed.state[other]["momentum_buffer"]
            assert there.dtype == torch.float32
            assert_same(there, optimizer.state[one]["momentum_buffer"])


def test_an_optimizer_saved_before_its_first_step(ckpt: df.Checkpointer) -> None:
    model = Net()
    save(ckpt, 1, {"model": model, "optim": torch.optim.Adam(model.parameters())})
    live = Net()
    used = torch.optim.Adam(live.parameters())
    train(live, used, 2, seed=0)
    ckpt.restore({"model": live, "optim": used})
    assert len(used.state) == 0
    assert state_bits(live) == state_bits(model)


def test_live_state_keeps_its_identity(ckpt: df.Checkpointer) -> None:
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.5))
    train(model, optimizer, 1, seed=0)
    state = {"model": model, "optim": optimizer}
    save(ckpt, 1, state)
    lr = optimizer.param_groups[0]["lr"]
    moment = optimizer.state[model.conv.weight]["exp_avg"]
    train(model, optimizer, 1, seed=1)
    lr.fill_(0.1)
    ckpt.restore(state)
    assert optimizer.param_groups[0]["lr"] is lr
    assert lr.item() == 0.5
    assert optimizer.state[model.conv.weight]["exp_avg"] is moment


def test_options_are_restored_as_saved(ckpt: df.Checkpointer) -> None:
    model = nn.Linear(2, 2)
    saved = torch.optim.AdamW(model.parameters(), lr=0.3, betas=(0.5, 0.6), foreach=True)
    save(ckpt, 1, {"model": model, "optim": saved})
    live = torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.1))
    ckpt.restore({"model": model, "optim": live})
    group = live.param_groups[0]
    assert (group["lr"], group["betas"], group["foreach"]) == (0.3, (0.5, 0.6), True)


def test_an_optimizer_of_other_parameters_is_refused(ckpt: df.Checkpointer) -> None:
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer, 1, seed=0)
    save(ckpt, 1, {"model": model, "optim": optimizer})
    live = Net()
    partial = torch.optim.Adam(live.conv.parameters())
    before = state_bits(live)
    with pytest.raises(df.MismatchError, match=r"optim\.state\.bn\.weight"):
        ckpt.restore({"model": live, "optim": partial})
    assert state_bits(live) == before
    assert len(partial.state) == 0
    wider = Net()
    wider.head = nn.Linear(4, 7)
    fault = r"optim\.state\.head\.weight: stored for .* \[2, 4\], live for one of shape \[7, 4\]"
    with pytest.raises(df.MismatchError, match=fault):
        ckpt.restore({"optim": torch.optim.Adam(wider.parameters()), "model": wider})


def test_only_the_step_is_put_on_the_host(ckpt: df.Checkpointer) -> None:
    parameter = torch.ones(2, requires_grad=True)
    parameter.grad = torch.ones(2)
    optimizer = torch.optim.Adam([parameter])
    optimizer.step()
    save(ckpt, 1, {"optim": optimizer})
    elsewhere = torch.ones(2, device="meta")
    live = torch.optim.Adam([elsewhere])
    ckpt.restore({"optim": live})
    devices = {key: value.device.type for key, value in live.state[elsewhere].items()}
    assert devices == {"step": "cpu", "exp_avg": "meta", "exp_avg_sq": "meta"}


def test_only_what_is_as_large_as_its_sharded_parameter_is_sharded(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameter = torch.ones(4)
    state = {"count": 3, "scale": torch.tensor(5.0), "mean": torch.arange(4.0)}
    optimizer = torch.optim.SGD([parameter])
    optimizer.state[parameter] = dict(state)
    save(ckpt, 1, {"optim": optimizer})
    live = torch.optim.SGD([parameter])
    monkeypatch.setattr(torch_optimizer_match, "is_sharded", lambda tensor: tensor is parameter)
    sharded: list[object] = []
    real = torch_optimizer_match.fill
    monkeypatch.setattr(
        torch_optimizer_match, "fill", lambda *of: (sharded.append(of[2]), real(*of))
    )
    ckpt.restore({"optim": live})
    assert sharded == ["optim.state.group0.param0.mean"]
    found = live.state[parameter]
    assert (found["count"], found["scale"].item()) == (3, 5.0)
    assert_same(found["mean"], state["mean"])


def schedulers(optimizer: torch.optim.Optimizer) -> list[Any]:
    return [
        lr_scheduler.StepLR(optimizer, 2),
        lr_scheduler.MultiStepLR(optimizer, [2, 5, 5]),
        lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step),
        lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3),
        lr_scheduler.ReduceLROnPlateau(optimizer),
        lr_scheduler.SequentialLR(
            optimizer,
            [lr_scheduler.ConstantLR(optimizer), lr_scheduler.ExponentialLR(optimizer, 0.9)],
            milestones=[2],
        ),
        lr_scheduler.OneCycleLR(optimizer, max_lr=0.3, total_steps=20),
    ]


@pytest.mark.parametrize("index", range(7))
def test_schedulers_go_on_where_they_were(ckpt: df.Checkpointer, index: int) -> None:
    def make() -> tuple[torch.optim.Optimizer, Any]:
        optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1, momentum=0.9)
        return optimizer, schedulers(optimizer)[index]

    def run(optimizer: torch.optim.Optimizer, scheduler: Any, steps: int) -> list[float]:
        rates = []
        for step in range(steps):
            optimizer.step()
            plateau = isinstance(scheduler, lr_scheduler.ReduceLROnPlateau)
            scheduler.step(*([step] if plateau else []))
            rates.append(float(optimizer.param_groups[0]["lr"]))
        return rates

    optimizer, scheduler = make()
    run(optimizer, scheduler, 4)
    save(ckpt, 4, {"optim": optimizer, "sched": scheduler})
    live, live_scheduler = make()
    ckpt.restore({"optim": live, "sched": live_scheduler})
    assert run(live, live_scheduler, 8) == run(optimizer, scheduler, 8)


def test_grad_scaler(ckpt: df.Checkpointer) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
    scaler.scale(torch.ones(1))
    scaler.update(64.0)
    save(ckpt, 1, {"scaler": scaler})
    live = torch.amp.GradScaler("cpu")
    ckpt.restore({"scaler": live})
    assert live.get_scale() == 64.0


class Counting:
    """An object of the program's own, with arrays and odd values in its state."""

    def __init__(self) -> None:
        self.state: dict[Any, Any] = {}

    def state_dict(self) -> dict[Any, Any]:
        return self.state

    def load_state_dict(self, state: dict[Any, Any]) -> None:
        self.state = state


def test_any_object_with_the_two_methods(ckpt: df.Checkpointer) -> None:
    counting = Counting()
    counting.state = {1: torch.arange(3), "s": {4, 5}, "t": (None, b"x" * 5000), "i": 1 << 80}
    save(ckpt, 1, {"own": counting})
    live = Counting()
    ckpt.restore({"own": live})
    assert live.state[1].tolist() == [0, 1, 2]
    assert {key: live.state[key] for key in ("s", "t", "i")} == {
        key: counting.state[key] for key in ("s", "t", "i")
    }


class Centered(torch.optim.SGD):
    """An optimizer with a format of its own."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.1)
        self.center = 0

    def state_dict(self) -> dict[str, Any]:  # type: ignore[override]
        return {**super().state_dict(), "center": self.center}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.center = state_dict.pop("center")
        super().load_state_dict(state_dict)


def test_an_optimizer_with_its_own_format_keeps_it(ckpt: df.Checkpointer) -> None:
    model = nn.Linear(2, 2)
    optimizer = Centered(model.parameters())
    optimizer.center = 5
    save(ckpt, 1, {"model": model, "optim": optimizer})
    live = Centered(model.parameters())
    ckpt.restore({"model": model, "optim": live})
    assert live.center == 5


class SavesItsOwn(torch.optim.SGD):
    """Gives more than torch would, and takes it as torch does."""

    def state_dict(self) -> dict[str, Any]:  # type: ignore[override]
        found = super().state_dict()
        return {**found, "state": {place: {"twice": 2 * place} for place in range(2)}}


class LoadsItsOwn(torch.optim.SGD):
    """Gives the state that torch would, and takes it in its own way."""

    loads = 0

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.loads += 1
        super().load_state_dict(state_dict)


def test_an_optimizer_with_half_a_format_of_its_own(ckpt: df.Checkpointer) -> None:
    model = nn.Linear(2, 2)
    saves, loads = SavesItsOwn(model.parameters()), LoadsItsOwn(model.parameters())
    save(ckpt, 1, {"model": model, "saves": saves, "loads": loads})
    ckpt.restore({"model": model, "saves": saves, "loads": loads})
    assert saves.state[model.bias] == {"twice": 2}
    assert loads.loads == 1


def test_saving_in_the_middle_of_an_accumulation(ckpt: df.Checkpointer) -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(2, 3, 6, 6)).sum().backward()
    gradient = copy.deepcopy(model.conv.weight.grad)
    save(ckpt, 1, {"model": model, "optim": optimizer})
    ckpt.restore({"model": model, "optim": optimizer})
    assert gradient is not None
    assert model.conv.weight.grad is not None
    assert torch.equal(model.conv.weight.grad, gradient)
    assert not any("grad" in name for name in header(data_file(ckpt.path, 1)))


def test_a_stateful_loader_with_workers_during_saves(ckpt: df.Checkpointer) -> None:
    loader_module = pytest.importorskip("torchdata.stateful_dataloader")

    def make() -> Any:
        return loader_module.StatefulDataLoader(
            torch.arange(64), batch_size=4, shuffle=True, num_workers=2,
            generator=torch.Generator().manual_seed(0), multiprocessing_context="fork",
        )  # fmt: skip

    ballast = torch.randn(1 << 22)
    ckpt.save(1, {"x": ballast})  # in flight while the workers fork
    loader = make()
    batches = iter(loader)
    for _ in range(3):
        next(batches)
        ckpt.save(2, {"x": ballast})
    save(ckpt, 3, {"data": loader})
    rest = [batch.tolist() for batch in batches]
    live = make()
    ckpt.restore({"data": live})
    assert [batch.tolist() for batch in live] == rest
    assert ckpt.failed_saves == 0
