"""The keys of a restore: patterns on names."""

import pytest
import torch
from testkit import momentum_over, save
from torch import nn

import deepfreeze as df


def test_keys_reach_the_state_of_optimizers(ckpt: df.Checkpointer) -> None:
    module = nn.Linear(2, 2)
    saved = torch.optim.SGD(module.parameters(), lr=0.3, momentum=0.9)
    saved.state["count"] = 5  # type: ignore[index]
    state = {"model": module, "optim": saved}
    save(ckpt, 1, state)

    def used() -> torch.optim.Optimizer:
        optimizer = momentum_over(module)
        optimizer.state["count"] = 1  # type: ignore[index]
        return optimizer

    live = used()
    ckpt.restore({"model": module, "optim": live}, keys=["optim.state.weight.*", "optim.*.lr"])
    assert live.state["count"] == 1  # type: ignore[index]
    assert module.weight not in live.state
    assert module.bias in live.state
    assert live.param_groups[0]["lr"] == 0.3

    live = used()
    ckpt.restore({"model": module, "optim": live}, keys=["optim.other.*"])
    assert live.state["count"] == 5  # type: ignore[index]
    assert module.weight in live.state


def test_the_name_of_an_object_chooses_all_in_it(ckpt: df.Checkpointer) -> None:
    module = nn.Linear(2, 2)
    optim = momentum_over(module)
    state = {"model": module, "optim": optim, "extra": {"scale": torch.ones(2)}}
    save(ckpt, 1, state)
    stored = module.weight.detach().clone(), optim.state[module.weight]["momentum_buffer"].clone()
    with torch.no_grad():
        for each in (module.weight, optim.state[module.weight]["momentum_buffer"]):
            each.add_(1)
        state["extra"]["scale"].add_(1)

    ckpt.restore(state, keys=["model"])
    assert torch.equal(module.weight, stored[0])
    assert not torch.equal(optim.state[module.weight]["momentum_buffer"], stored[1])
    ckpt.restore(state, keys=["opt*", "extra"])
    assert torch.equal(optim.state[module.weight]["momentum_buffer"], stored[1])
    assert torch.equal(state["extra"]["scale"], torch.ones(2))


@pytest.mark.parametrize("strict", [True, False])
def test_keys_that_match_nothing_are_an_error(ckpt: df.Checkpointer, strict: bool) -> None:
    module = nn.Linear(2, 2)
    sgd = torch.optim.SGD(module.parameters(), lr=0.1)
    state = {"model": module, "act": nn.ReLU(), "optim": sgd}
    save(ckpt, 1, state)
    with pytest.raises(df.MismatchError, match=r"keys modle\.\* match nothing"):
        ckpt.restore(state, keys=["model.*", "modle.*"], strict=strict)
    ckpt.restore(state, keys=["model.*", "act.*", "optim.state.*", "optim.*"], strict=strict)
