"""load_into() and checkpoints(): a model filled from one step of a run that stays untouched."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from explore_kit import contents

import deepfreeze as df


def net(seed: int = 0) -> torch.nn.Sequential:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))


def values(module: torch.nn.Module) -> dict[str, Any]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def trained(run: Path, steps: int = 3, **more: Any) -> list[dict[str, Any]]:
    """A run whose learning rate halves at each step; the model's values after each."""
    model = net()
    groups = [{"params": model[0].parameters()}, {"params": model[1].parameters(), "lr": 8.0}]
    optimizer = torch.optim.SGD(groups, lr=4.0, momentum=0.9)
    found = []
    with df.Checkpointer(run) as ckpt:
        for step in range(1, steps + 1):
            for group in optimizer.param_groups:
                group["lr"] /= 2
            optimizer.zero_grad()
            model(torch.randn(5, 3)).square().sum().backward()
            optimizer.step()
            state = {"model": model, "optimizer": optimizer, "rng": df.RNG(), **more}
            ckpt.save(step, state, metrics={"loss": 1 / step}, tags={"n": str(step)}).wait(
                "durable"
            )
            found.append(values(model))
    return found


def test_a_model_is_filled_in_place_and_the_options_are_those_of_the_step(tmp_path: Path) -> None:
    saved = trained(tmp_path)
    before = contents(tmp_path)
    model = net(seed=1)
    parameters = [id(each) for each in model.parameters()]
    for step in (2, 3, 1):
        options = df.load_into(model, tmp_path, step)
        assert same(values(model), saved[step - 1])
        assert [group["lr"] for group in options] == [4.0 / 2**step, 8.0 / 2**step]
        assert [group["momentum"] for group in options] == [0.9, 0.9]
        assert all("params" not in group for group in options)
    assert [id(each) for each in model.parameters()] == parameters
    assert df.load_into(model, tmp_path, "best:loss")[0]["lr"] == 0.5
    assert contents(tmp_path) == before


def test_a_learning_rate_that_is_a_tensor_comes_back_as_one(tmp_path: Path) -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.25))
    with df.Checkpointer(tmp_path) as ckpt:
        ckpt.save(1, {"model": model, "optimizer": optimizer})
    (group,) = df.load_into(net(1), tmp_path, 1)
    assert torch.equal(group["lr"], torch.tensor(0.25))


def test_a_run_that_is_written_meanwhile_is_not_claimed(tmp_path: Path) -> None:
    model = net()
    with df.Checkpointer(tmp_path) as ckpt:
        for step in (1, 2, 3):
            ckpt.save(step, {"model": model}).wait("durable")
            assert df.load_into(net(1), tmp_path, step) == []
    assert [each.step for each in df.checkpoints(tmp_path)] == [1, 2, 3]


def test_several_objects_are_told_apart_by_name(tmp_path: Path) -> None:
    one, two = net(1), net(2)
    opts = {name: torch.optim.SGD(each.parameters(), lr=lr)
            for name, each, lr in (("a", one, 0.5), ("b", two, 0.125))}  # fmt: skip
    with df.Checkpointer(tmp_path) as ckpt:
        ckpt.save(1, {"nets": {"a": one, "b": two}, "opts": opts, "w": np.arange(3.0)})
    model = net(3)
    with pytest.raises(df.CheckpointError, match=r"2 torch modules: nets\.a, nets\.b.*module="):
        df.load_into(model, tmp_path, 1)
    with pytest.raises(df.CheckpointError, match=r"2 torch optimizers: opts\.a.*optimizer="):
        df.load_into(model, tmp_path, 1, module="nets.b")
    assert same(values(model), values(net(3)))
    (group,) = df.load_into(model, tmp_path, 1, module="nets.b", optimizer="opts.b")
    assert same(values(model), values(two))
    assert group["lr"] == 0.125
    array = np.zeros(3)
    df.load_into(array, tmp_path, 1, module="w", optimizer="opts.a")
    assert array.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ({"step": 7}, "not_found", r"load .*@7 into a model: no checkpoint of step 7.*\[1, 2, 3\]"),
        ({"module": "mdel"}, "not_found", "called 'mdel'; its objects are model, optimizer, rng"),
        ({"optimizer": "model"}, "invalid_argument", "no torch optimizer: .* one of optimizer$"),
        ({"step": "worst"}, "invalid_argument", "'worst' is no number"),
        ({"model": 3.5, "module": "step"}, "invalid_argument", "float can't be changed in place"),
    ],
)
def test_errors_say_what_to_do(tmp_path: Path, words: dict[str, Any], code: str, text: str) -> None:
    trained(tmp_path, step=1.5)
    arguments = {"model": net(1), "step": 1, **words}
    with pytest.raises(df.CheckpointError, match=text) as caught:
        df.load_into(run=tmp_path, **arguments)
    assert caught.value.code == code


def test_a_run_without_a_module_a_run_without_steps_and_none_at_all(tmp_path: Path) -> None:
    with df.Checkpointer(tmp_path / "run") as ckpt:
        ckpt.save(1, {"w": np.arange(3.0)})
    with pytest.raises(df.CheckpointError, match=r"no torch module; its objects are none\. Say"):
        df.load_into(net(), tmp_path / "run", 1)
    with pytest.raises(df.CheckpointError, match=r"load .*none@latest into a model: "):
        df.load_into(net(), tmp_path / "none", "latest")
    assert not (tmp_path / "none").exists()


def test_a_model_of_another_shape_is_refused_and_untouched(tmp_path: Path) -> None:
    trained(tmp_path)
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5))
    before = values(model)
    with pytest.raises(
        df.MismatchError, match=r"@1 into a model: model\.0\.weight: stored"
    ) as raised:
        df.load_into(model, tmp_path, 1)
    assert not raised.value.state_modified
    assert same(values(model), before)


def test_a_damaged_step_is_not_replaced_by_another_one(tmp_path: Path) -> None:
    trained(tmp_path)
    (part,) = Path(df.checkpoints(tmp_path)[-1].path).glob("rank-*.safetensors")
    with part.open("r+b") as file:
        file.seek(-2, 2)
        last = file.read(1)
        file.seek(-2, 2)
        file.write(bytes([last[0] ^ 1]))
    with pytest.raises(df.CorruptError, match="@3 into a model: ") as raised:
        df.load_into(net(1), tmp_path, 3)
    assert raised.value.state_modified  # it is read in place


def test_a_state_dict_that_was_saved_fills_a_state_dict(tmp_path: Path) -> None:
    with df.Checkpointer(tmp_path) as ckpt:
        ckpt.save(1, {"model": net(1).state_dict()})
    model = net(2)
    df.load_into(model.state_dict(), tmp_path, 1, module="model")
    assert same(values(model), values(net(1)))


def test_threads_fill_models_of_their_own(tmp_path: Path) -> None:
    saved = trained(tmp_path, steps=6)
    models = [net(step) for step in range(6)]
    threads = [
        threading.Thread(target=df.load_into, args=(model, tmp_path, step))
        for step, model in enumerate(models, 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(same(values(model), each) for model, each in zip(models, saved, strict=True))


def test_checkpoints_come_in_order_and_read_nothing_before_load(tmp_path: Path) -> None:
    saved = trained(tmp_path)
    found = df.checkpoints(tmp_path, ["model.0.*"])
    assert [(each.step, each.metrics["loss"], each.tags["n"]) for each in found] == [
        (1, 1.0, "1"), (2, 0.5, "2"), (3, 1 / 3, "3"),
    ]  # fmt: skip
    loaded = found[1].load()
    assert loaded.keys() == {"model"}
    assert torch.equal(loaded["model"]["0.weight"], saved[1]["0.weight"])
    assert loaded["model"].keys() == {"0.weight", "0.bias"}


def test_abandoned_steps_are_left_out(tmp_path: Path) -> None:
    trained(tmp_path)
    model = net()
    with df.Checkpointer(tmp_path) as ckpt:
        ckpt.restore({"model": model}, step=1, keys=["model.*"])
        ckpt.save(2, {"model": model}).wait("durable")
    assert [each.step for each in df.checkpoints(tmp_path)] == [1, 2]
    assert df.load_into(net(1), tmp_path, 2) == []  # the newer of two
