"""Names without a model's wrappers: a wrapper may come or go between save and restore."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from testkit import assert_same, data_file, header, save
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

import deepfreeze as df
from deepfreeze.frameworks.torch import modules as torch_modules
from deepfreeze.frameworks.torch import optimizers as torch_optimizers
from deepfreeze.frameworks.torch.modules import canonical_names, names_of_now


class Foreign(nn.Module):
    """As apex, DeepSpeed and Megatron-LM hold a model."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


Foreign.__module__, Foreign.__name__ = "apex.parallel.distributed", "DistributedDataParallel"


def bare() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))


def inner_wrapped() -> nn.Module:
    model = bare()
    model[1] = checkpoint_wrapper(model[1])  # type: ignore[operator]
    return model


def made(model: nn.Module, seed: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        with torch.no_grad():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    optimizer = torch.optim.Adam(model.parameters())
    optimizer.step()
    return {"model": model, "optim": optimizer}


def assert_restored(ckpt: df.Checkpointer, live: dict[str, Any], stored: dict[str, Any]) -> None:
    ckpt.restore(live)
    for here, there in zip(live["model"].parameters(), stored["model"].parameters(), strict=True):
        assert_same(here, there)
        moments = live["optim"].state[here], stored["optim"].state[there]
        assert_same(moments[0]["exp_avg"], moments[1]["exp_avg"])


@pytest.mark.parametrize("there", [bare, inner_wrapped, lambda: Foreign(inner_wrapped())])
@pytest.mark.parametrize("here", [bare, inner_wrapped, lambda: Foreign(inner_wrapped())])
def test_the_prefixes_of_wrappers_are_in_no_name(
    ckpt: df.Checkpointer, there: Callable[[], nn.Module], here: Callable[[], nn.Module]
) -> None:
    stored = made(there(), 1)
    save(ckpt, 1, stored)
    assert "optim.state.1.weight.exp_avg" in header(data_file(ckpt.path, 1))
    assert_restored(ckpt, made(here(), 2), stored)


def private_only(*_: object) -> Callable[[str], str]:
    """The names of version 0.1, which knew neither activation wrappers nor those of others."""
    return lambda name: name


@pytest.mark.parametrize("there", [inner_wrapped, lambda: Foreign(bare())])
@pytest.mark.parametrize("here", [bare, inner_wrapped, lambda: Foreign(bare())])
def test_a_checkpoint_of_version_0_1_has_them_and_is_restored(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch, there: Any, here: Any
) -> None:
    stored = made(there(), 1)
    with monkeypatch.context() as patch:
        for place in (torch_modules, torch_optimizers):
            patch.setattr(place, "canonical_names", private_only)
        save(ckpt, 1, stored)
    names = header(data_file(ckpt.path, 1))
    assert any("_checkpoint_wrapped_module" in name or ".module." in name for name in names)
    assert_restored(ckpt, made(here(), 2), stored)


def test_a_child_of_the_model_keeps_its_name() -> None:
    model = nn.Sequential()
    model.add_module("module", nn.Linear(1, 1))
    assert canonical_names(model)("module.weight") == "module.weight"
    outer = Foreign(model)
    assert canonical_names(outer)("module.module.weight") == "module.weight"
    both = nn.ModuleDict({"module": nn.Linear(1, 1), "a": nn.DataParallel(nn.Linear(1, 1))})
    assert canonical_names(both)("module.weight") == "module.weight"
    assert canonical_names(both)("a.module.weight") == "a.weight"


def test_an_averaged_model_is_another_model_than_the_one_in_it(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"model": torch.optim.swa_utils.AveragedModel(bare())})
    live = bare()
    with pytest.raises(df.MismatchError, match="n_averaged"):
        ckpt.restore({"model": live})
    before = {name: value.clone() for name, value in live.state_dict().items()}
    ckpt.restore({"model": live}, strict=False)
    for name, value in live.state_dict().items():
        assert_same(value, before[name])


def test_only_names_that_are_clear_are_taken_for_others() -> None:
    wrapped = "_checkpoint_wrapped_module"
    assert names_of_now([f"a.{wrapped}.w"], ["a.w"]) == {f"a.{wrapped}.w": "a.w"}
    assert names_of_now([f"a.{wrapped}.w"], ["b.w"]) == {}
    assert names_of_now([f"a.{wrapped}.w", "a.w"], ["a.w"]) == {}
    assert names_of_now([f"a.{wrapped}.w", f"{wrapped}.a.w"], ["a.w"]) == {f"{wrapped}.a.w": "a.w"}
    assert names_of_now([f"a.{wrapped}.w"], [f"a.{wrapped}.w", "a.w"]) == {}
    assert names_of_now(["module.w", "module.b"], ["w", "b"]) == {"module.w": "w", "module.b": "b"}
    assert names_of_now(["module.w", "b"], ["w", "b"]) == {}


class Keeper(nn.Module):
    """Keeps the model that it was made of, as adapters do, beside weights of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((1, 1), 5.0))
        self._orig_mod = nn.Linear(1, 1)


def test_a_child_that_has_the_name_of_a_wrappers_keeps_it(ckpt: df.Checkpointer) -> None:
    stored, live = made(Keeper(), 1), made(Keeper(), 2)
    save(ckpt, 1, stored)
    assert {"model.weight", "model._orig_mod.weight"} <= header(data_file(ckpt.path, 1)).keys()
    assert_restored(ckpt, live, stored)
