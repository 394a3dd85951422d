"""Beside torch's own load_state_dict: every optimizer, scheduler and wrapper that torch has.

Each state is saved and restored by us, and loaded by torch out of the same state_dict(). After a
restore each value equals torch's, or is unchanged and reported. TORCH_TAKES lists changes that we
refuse although torch takes them, with the reasons; docs/state.md has the same list.
"""

import copy
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.fsdp
import torch.distributed.tensor
from testkit import bits, same, save
from torch import nn
from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as activation
from torch.optim import Optimizer, lr_scheduler

import deepfreeze as df

# Keyed by the change between save and restore. torch refuses each of them for modules.
TORCH_TAKES = {
    "optimizer, renamed": "torch goes by the order of the parameters, and can't tell two swapped",
    "optimizer, resized": "torch loads state of a wrong shape, and the next step fails or is wrong",
    "optimizer, other class": "torch replaces the options, and the next step fails or is wrong",
    "scheduler, other class": "torch overwrites attributes by name, whatever they mean there",
}


class Small(nn.Module):
    """Two matrices and nothing else, because Muon takes no vectors."""

    def __init__(self, names: tuple[str, str] = ("first", "last"), width: int = 3) -> None:
        super().__init__()
        self.names = names
        setattr(self, names[0], nn.Linear(width, 3, bias=False))
        setattr(self, names[1], nn.Linear(3, 2, bias=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.get_submodule(self.names[0])(x)
        out: torch.Tensor = self.get_submodule(self.names[1])(torch.tanh(inner))
        return out


def rebuilt(change: str) -> Small:
    """A model as the program may have it when it comes up again."""
    if change == "renamed":
        return Small(names=("body", "head"))
    return Small(width=4) if change == "resized" else Small()


def steps(model: nn.Module, optimizer: Optimizer, count: int, seed: int) -> None:
    """Trains with gradients that depend on the seed alone."""
    generator = torch.Generator().manual_seed(seed)
    sparse = isinstance(optimizer, torch.optim.SparseAdam)
    for _ in range(count):
        for parameter in model.parameters():
            gradient = torch.randn(parameter.shape, generator=generator)
            parameter.grad = gradient.to_sparse(1) if sparse else gradient
        optimizer.step(lambda: 0.0)


def values(value: Any, path: str = "") -> dict[str, Any]:
    """Tensors and plain values by their dotted paths; tensors as dtype, shape and bytes."""
    if isinstance(value, torch.Tensor):
        return {path: (value.dtype, tuple(value.shape), bits(value.to_dense()))}
    if isinstance(value, dict):
        pairs = [values(item, f"{path}.{key}") for key, item in value.items()]
    elif isinstance(value, (list, tuple)):
        pairs = [values(item, f"{path}.{index}") for index, item in enumerate(value)]
    else:
        return {path: value}
    return {name: item for pair in pairs for name, item in pair.items()}


def assert_alike(ours: object, torchs: object) -> None:
    here, there = values(ours), values(torchs)
    assert here.keys() == there.keys()
    for name, value in there.items():
        assert same(here[name], value), name


def assert_nothing_reported(ckpt: df.Checkpointer) -> None:
    report = ckpt.last_restore
    assert report is not None
    assert [*report.missing, *report.unexpected, *report.mismatched] == []


OPTIMIZERS: dict[str, Callable[[nn.Module], Optimizer]] = {
    "ASGD": lambda m: torch.optim.ASGD(m.parameters()),
    "Adadelta": lambda m: torch.optim.Adadelta(m.parameters()),
    "Adafactor": lambda m: torch.optim.Adafactor(m.parameters()),
    "Adagrad": lambda m: torch.optim.Adagrad(m.parameters()),
    "Adam": lambda m: torch.optim.Adam(m.parameters(), amsgrad=True),
    "AdamW": lambda m: torch.optim.AdamW(m.parameters()),
    "Adamax": lambda m: torch.optim.Adamax(m.parameters()),
    "LBFGS": lambda m: torch.optim.LBFGS(m.parameters(), max_iter=2),
    "Muon": lambda m: torch.optim.Muon(m.parameters()),
    "NAdam": lambda m: torch.optim.NAdam(m.parameters()),
    "RAdam": lambda m: torch.optim.RAdam(m.parameters()),
    "RMSprop": lambda m: torch.optim.RMSprop(m.parameters(), momentum=0.9, centered=True),
    "Rprop": lambda m: torch.optim.Rprop(m.parameters()),
    "SGD": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9),
    "SparseAdam": lambda m: torch.optim.SparseAdam(m.parameters()),
}


def test_no_optimizer_of_torch_is_left_out() -> None:
    classes = {name for name in dir(torch.optim) if inspect.isclass(getattr(torch.optim, name))}
    assert classes - {"Optimizer"} == OPTIMIZERS.keys()


def trained(name: str, seed: int, change: str = "own") -> dict[str, Any]:
    torch.manual_seed(seed)
    model = rebuilt(change)
    optimizer = OPTIMIZERS[name](model)
    steps(model, optimizer, 3, seed)
    return {"model": model, "optim": optimizer}


def next_of(name: str, names: dict[str, Any]) -> str:
    every = list(names)
    return every[(every.index(name) + 1) % len(every)]


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_comes_back_as_torch_loads_it(
    ckpt: df.Checkpointer, name: str, strict: bool
) -> None:
    stored, live, theirs = trained(name, 1), trained(name, 2), trained(name, 2)
    for key in ("model", "optim"):
        theirs[key].load_state_dict(copy.deepcopy(stored[key].state_dict()))
    save(ckpt, 1, stored)
    assert ckpt.restore(live, strict=strict) == 1
    for state in (live, theirs):
        steps(state["model"], state["optim"], 2, 3)
    assert_alike(live["optim"].state_dict(), theirs["optim"].state_dict())
    assert_alike(live["model"].state_dict(), theirs["model"].state_dict())
    assert_nothing_reported(ckpt)


@pytest.mark.parametrize("change", ["renamed", "resized"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_of_other_parameters_is_refused_or_reported(
    ckpt: df.Checkpointer, name: str, change: str
) -> None:
    stored, live = trained(name, 1), trained(name, 2, change)
    save(ckpt, 1, stored)
    before = values(live["optim"].state_dict()["state"])
    if takes(trained(name, 2, change)["optim"], stored["optim"]):
        assert f"optimizer, {change}" in TORCH_TAKES
    with pytest.raises(df.MismatchError, match=r"optim\.state\.(first|body)") as caught:
        ckpt.restore(live)
    assert not caught.value.state_modified
    assert values(live["optim"].state_dict()["state"]) == before

    assert ckpt.restore(live, strict=False) == 1
    report = ckpt.last_restore
    assert report is not None
    here = values(live["optim"].state_dict()["state"])
    there = values(stored["optim"].state_dict()["state"])
    kept = {path.split(".")[1] for path in here if same(here[path], before.get(path))}
    kept |= {path.split(".")[1] for path in here if not same(here[path], there.get(path))}
    names = live["model"].names
    reported = {*report.missing, *report.mismatched}
    for index, layer in enumerate(names):
        if any(place.startswith(f"optim.state.{layer}.weight") for place in reported):
            assert all(same(here[p], before.get(p)) for p in here if p.startswith(f".{index}."))
        else:
            assert all(same(here[p], there.get(p)) for p in here if p.startswith(f".{index}."))
    if change == "renamed":
        assert {f"optim.state.{layer}.weight" for layer in names} <= reported
    steps(live["model"], live["optim"], 2, 3)  # and it goes on


def takes(loads: Any, stored: Any) -> bool:
    """Whether torch's own load_state_dict says nothing."""
    try:
        loads.load_state_dict(copy.deepcopy(stored.state_dict()))
    except (KeyError, RuntimeError, ValueError):
        return False
    return True


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_of_another_optimizer_is_refused_or_reported(
    ckpt: df.Checkpointer, name: str
) -> None:
    stored, live = trained(name, 1), trained(next_of(name, OPTIMIZERS), 2)
    save(ckpt, 1, stored)
    before = values(live["optim"].state_dict())
    there = values(stored["optim"].state_dict())
    if takes(trained(next_of(name, OPTIMIZERS), 2)["optim"], stored["optim"]):
        assert "optimizer, other class" in TORCH_TAKES
    both = rf"{name}.*{next_of(name, OPTIMIZERS)}"
    with pytest.raises(df.MismatchError, match=rf"optim: .*{both}"):
        ckpt.restore(live)
    assert values(live["optim"].state_dict()) == before

    assert ckpt.restore(live, strict=False) == 1
    report = ckpt.last_restore
    assert report is not None
    assert "optim" in report.mismatched
    here = values(live["optim"].state_dict())
    assert before.keys() <= here.keys() <= before.keys() | there.keys()
    for path, value in here.items():
        assert same(value, before.get(path)) or same(value, there.get(path)), path
    steps(live["model"], live["optim"], 2, 3)  # which died of the other's options before


def lambdas(epoch: int) -> float:
    return 0.9**epoch


SCHEDULERS: dict[str, Callable[[Optimizer], Any]] = {
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambdas),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambdas),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [1, 4]),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, total_iters=4),
    "LinearLR": lr_scheduler.LinearLR,
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o), lr_scheduler.ExponentialLR(o, 0.9)], [4]
    ),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 8),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.LinearLR(o), lr_scheduler.ExponentialLR(o, 0.9)]
    ),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=1),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=3),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=12),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 8),
}


def test_no_scheduler_of_torch_is_left_out() -> None:
    assert set(lr_scheduler.__all__) - {"LRScheduler"} == SCHEDULERS.keys()


def scheduled(name: str, count: int) -> dict[str, Any]:
    optimizer = torch.optim.SGD([torch.ones(2)], lr=0.1, momentum=0.9)
    state = {"optim": optimizer, "sched": SCHEDULERS[name](optimizer)}
    rates(state, count)
    return state


def rates(state: dict[str, Any], count: int) -> list[Any]:
    """The learning rates of the next steps."""
    found = []
    for _ in range(count):
        state["optim"].step()
        plateau = isinstance(state["sched"], lr_scheduler.ReduceLROnPlateau)
        state["sched"].step(1.0) if plateau else state["sched"].step()
        found.append(state["optim"].param_groups[0]["lr"])
    return found


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_scheduler_comes_back_as_torch_loads_it(
    ckpt: df.Checkpointer, name: str, strict: bool
) -> None:
    stored, live, theirs = scheduled(name, 3), scheduled(name, 1), scheduled(name, 1)
    for key in ("optim", "sched"):
        theirs[key].load_state_dict(copy.deepcopy(stored[key].state_dict()))
    save(ckpt, 1, stored)
    assert ckpt.restore(live, strict=strict) == 1
    assert_alike(live["sched"].state_dict(), theirs["sched"].state_dict())
    undisturbed = rates(stored, 6)
    assert rates(theirs, 6) == undisturbed
    assert rates(live, 6) == undisturbed


@pytest.mark.parametrize("name", SCHEDULERS)
def test_state_of_another_scheduler_is_refused_or_reported(
    ckpt: df.Checkpointer, name: str
) -> None:
    stored, live = scheduled(name, 3), scheduled(next_of(name, SCHEDULERS), 1)
    save(ckpt, 1, stored)
    if takes(scheduled(next_of(name, SCHEDULERS), 1)["sched"], stored["sched"]):
        assert "scheduler, other class" in TORCH_TAKES
    both = rf"{name}.*{next_of(name, SCHEDULERS)}"
    before = values(live["sched"].state_dict())
    with pytest.raises(df.MismatchError, match=rf"sched: .*{both}"):
        ckpt.restore(live)
    assert values(live["sched"].state_dict()) == before
    assert ckpt.restore(live, strict=False) == 1
    assert ckpt.last_restore is not None
    assert "sched" in ckpt.last_restore.mismatched
    rates(live, 6)  # and it goes on


@pytest.fixture(scope="module")
def process_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One process, for the wrappers that ask for a group."""
    file: Path = tmp_path_factory.mktemp("group") / "store"
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def with_inner(wrap: Callable[[nn.Module], nn.Module]) -> Callable[[nn.Module], nn.Module]:
    """Wraps one submodule, as activation checkpointing and offloading do."""

    def put(model: nn.Module) -> nn.Module:
        name = getattr(model, "names")[0]  # noqa: B009
        setattr(model, name, wrap(model.get_submodule(name)))
        return model

    return put


COMPILED: Any = partial(torch.compile, backend="eager")
WRAPPERS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "none": lambda m: m,
    "DataParallel": nn.DataParallel,
    "DistributedDataParallel": nn.parallel.DistributedDataParallel,
    "compile": COMPILED,
    "compile of a part": with_inner(COMPILED),
    "checkpoint_wrapper": with_inner(activation.checkpoint_wrapper),
    "offload_wrapper": with_inner(activation.offload_wrapper),
    "fully_shard": dist.fsdp.fully_shard,
    "all of them": lambda m: COMPILED(
        nn.parallel.DistributedDataParallel(
            with_inner(lambda x: activation.checkpoint_wrapper(activation.offload_wrapper(x)))(m)
        )
    ),
}


def plain(model: nn.Module) -> list[torch.Tensor]:
    """The parameters in order, whole and without their wrappers' names."""
    found = [parameter.detach() for parameter in model.parameters()]
    return [t.full_tensor() if isinstance(t, dist.tensor.DTensor) else t for t in found]


def wrapped(name: str, seed: int, change: str = "own") -> dict[str, Any]:
    torch.manual_seed(seed)
    model = WRAPPERS[name](rebuilt(change))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        gradient = torch.randn(parameter.shape, generator=generator)
        if isinstance(parameter, dist.tensor.DTensor):
            gradient = dist.tensor.distribute_tensor(
                gradient, parameter.device_mesh, parameter.placements
            )
        parameter.grad = gradient
    optimizer.step()
    return {"model": model, "optim": optimizer}


def moments(state: dict[str, Any]) -> list[torch.Tensor]:
    found = [state["optim"].state[p]["exp_avg"] for p in state["model"].parameters()]
    return [t.full_tensor() if isinstance(t, dist.tensor.DTensor) else t for t in found]


PAIRS = sorted({pair for name in WRAPPERS for pair in ((name, "none"), ("none", name))})


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize(("there", "here"), [*PAIRS, ("all of them", "all of them")])
def test_wrappers_may_come_and_go(ckpt: df.Checkpointer, there: str, here: str) -> None:
    """torch itself needs the names mended for this, because its own keep the wrappers' prefixes."""
    stored = wrapped(there, 1)
    save(ckpt, 1, stored)
    for strict in (True, False):
        live = wrapped(here, 2)
        assert ckpt.restore(live, strict=strict) == 1
        assert_alike(plain(live["model"]), plain(stored["model"]))
        assert_alike(moments(live), moments(stored))
        assert_nothing_reported(ckpt)


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("change", ["renamed", "resized"])
@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapped_model_of_another_form_is_refused_or_reported(
    ckpt: df.Checkpointer, name: str, change: str
) -> None:
    stored, live = wrapped("none", 1), wrapped(name, 2, change)
    save(ckpt, 1, stored)
    before = values(plain(live["model"]))
    with pytest.raises(df.MismatchError, match=r"model\.(first|body|head)\.weight"):
        ckpt.restore(live)
    assert values(plain(live["model"])) == before
    assert ckpt.restore(live, strict=False) == 1
    report = ckpt.last_restore
    assert report is not None
    if change == "renamed":
        assert values(plain(live["model"])) == before
        assert {"model.body.weight", "model.head.weight"} <= set(report.missing)
        assert {"model.first.weight", "model.last.weight"} <= set(report.unexpected)
        return
    first, last = plain(live["model"])
    assert same(values(first), {"": before[".0"]})
    assert_alike(last, plain(stored["model"])[1])
    assert set(report.mismatched) == {"model.first.weight", "optim.state.first.weight"}
