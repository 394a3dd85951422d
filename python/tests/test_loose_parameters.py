"""Optimizers over tensors that no module has: state goes by the names that the state gives them."""

from typing import Any

import pytest
import torch
from testkit import assert_same, data_file, header, save

import deepfreeze as df
from deepfreeze.frameworks.torch.optimizers import ParameterNames
from deepfreeze.restoring import restorer as reading


def made(*, flip: bool = False, nested: bool = False) -> dict[str, Any]:
    a, b = (torch.zeros(2, requires_grad=True) for _ in range(2))
    a.grad, b.grad = torch.full((2,), 1.0), torch.full((2,), 5.0)
    optimizer = torch.optim.SGD([b, a] if flip else [a, b], 0.1, momentum=0.9)
    tensors: Any = {"a": a, "b": b}
    return {"net": {"w": (tensors, [])} if nested else tensors, "o": optimizer}


def momenta(state: dict[str, Any]) -> list[torch.Tensor]:
    tensors = state["net"]["w"][0] if "w" in state["net"] else state["net"]
    return [state["o"].state[tensors[name]]["momentum_buffer"] for name in ("a", "b")]


@pytest.mark.parametrize("nested", [False, True])
def test_state_goes_by_the_names_in_the_state(ckpt: df.Checkpointer, nested: bool) -> None:
    stored = made(nested=nested)
    stored["o"].step()
    save(ckpt, 1, stored)
    assert "o.state.a.momentum_buffer" in header(data_file(ckpt.path, 1))
    live = made(flip=True, nested=nested)
    ckpt.restore(live)
    for here, there in zip(momenta(live), momenta(stored), strict=True):
        assert_same(here, there)


def test_a_checkpoint_of_version_0_1_went_by_their_order(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = made()
    stored["o"].step()
    with monkeypatch.context() as patch:
        patch.setattr(ParameterNames, "_name_loose", lambda *_: None)
        save(ckpt, 1, stored)
    assert "o.state.group0.param0.momentum_buffer" in header(data_file(ckpt.path, 1))
    live = made()
    ckpt.restore(live)
    for here, there in zip(momenta(live), momenta(stored), strict=True):
        assert_same(here, there)


def test_version_0_1_called_nothing_by_the_name_of_a_loose_tensor(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named as a parameter of a module is: the two must not be mistaken for each other."""

    def both() -> dict[str, Any]:
        module, loose = torch.nn.Linear(2, 2, bias=False), torch.zeros(2, 2, requires_grad=True)
        module.weight.grad, loose.grad = torch.full((2, 2), 1.0), torch.full((2, 2), 5.0)
        optimizer = torch.optim.SGD([module.weight, loose], 0.1, momentum=0.9)
        return {"m": module, "weight": loose, "o": optimizer}

    def without_class(*of: Any) -> Any:
        tree = real(*of)
        del tree["o"]["class"]
        return tree

    stored, live, real = both(), both(), reading._tree_of
    stored["o"].step()
    with monkeypatch.context() as patch:
        patch.setattr(ParameterNames, "_name_loose", lambda *_: None)
        save(ckpt, 1, stored)
    monkeypatch.setattr(reading, "_tree_of", without_class)
    ckpt.restore(live)
    assert live["o"].state[live["weight"]]["momentum_buffer"][0, 0] == 5
    assert live["o"].state[live["m"].weight]["momentum_buffer"][0, 0] == 1


def test_tensors_that_the_live_state_does_not_name(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"o": made()["o"], **made()})
    live = made()["o"]
    with pytest.raises(df.MismatchError, match=r"o\.state: no place .* group0\.param0 .* a is sto"):
        ckpt.restore({"o": live})


def test_a_tensor_that_moves_in_the_state_has_its_new_name_at_the_next_save(
    ckpt: df.Checkpointer,
) -> None:
    state = made()
    state["o"].step()
    save(ckpt, 1, state)
    state["net"]["c"] = state["net"].pop("a")
    save(ckpt, 2, state)
    names = header(data_file(ckpt.path, 2))
    assert "o.state.c.momentum_buffer" in names
    assert "o.state.a.momentum_buffer" not in names


def test_each_ranks_own_tensor_and_one_that_only_the_optimizer_has(ckpt: df.Checkpointer) -> None:
    own, other = (torch.zeros(2, requires_grad=True) for _ in range(2))
    own.grad, other.grad = torch.ones(2), torch.ones(2)
    optimizer = torch.optim.SGD([own, other], 0.1, momentum=0.9)
    optimizer.step()
    save(ckpt, 1, {"mine": df.per_rank({"w": own}), "o": optimizer})
    names = header(data_file(ckpt.path, 1))
    assert {"o.state.w.momentum_buffer", "o.state.group0.param1.momentum_buffer"} <= names.keys()
