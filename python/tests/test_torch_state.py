"""torch modules: the values that are stored, loaded and filled in place."""

import copy
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from testkit import Net, assert_same, bits, data_file, header, round_trip, save, state_bits
from torch import nn

import deepfreeze as df
from deepfreeze.base.names import KeyTable, Owner
from deepfreeze.frameworks.torch import modules as torch_modules


def test_tied_weights_are_stored_once_and_stay_tied(ckpt: df.Checkpointer) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(5, 4)
            self.head = nn.Linear(4, 5, bias=False)
            self.head.weight = self.embed.weight

    model = Tied()
    loaded = round_trip(ckpt, {"model": model})["model"]
    assert set(header(data_file(ckpt.path, 1))) - {"__metadata__"} == {"model.embed.weight"}
    assert loaded["embed.weight"].data_ptr() == loaded["head.weight"].data_ptr()
    live = Tied()
    ckpt.restore({"model": live})
    assert_same(live.head.weight, model.embed.weight)
    assert live.head.weight is live.embed.weight


def test_a_sparse_buffer_of_a_module(ckpt: df.Checkpointer) -> None:
    class Graph(nn.Module):
        def __init__(self, scale: float) -> None:
            super().__init__()
            self.register_buffer("adjacency", (torch.eye(3) * scale).to_sparse())

    save(ckpt, 1, {"model": Graph(2.0)})
    live = Graph(1.0)
    ckpt.restore({"model": live})
    assert torch.equal(live.adjacency.to_dense(), torch.eye(3) * 2)


@pytest.mark.parametrize("stored_is_sparse", [False, True])
def test_a_sparse_buffer_and_a_dense_one_are_a_mismatch(
    ckpt: df.Checkpointer, stored_is_sparse: bool
) -> None:
    dense, sparse = nn.Module(), nn.Module()
    dense.register_buffer("adjacency", torch.eye(3))
    sparse.register_buffer("adjacency", torch.eye(3).to_sparse())
    stored, live = (sparse, dense) if stored_is_sparse else (dense, sparse)
    save(ckpt, 1, {"model": stored})
    with pytest.raises(df.MismatchError, match=r"model\.adjacency: stored .*, live a .* tensor"):
        ckpt.restore({"model": live})


@pytest.mark.parametrize(("rank", "owner"), [(4, None), (5, Owner.ANOTHER)])
def test_buffers_are_those_of_the_first_rank_of_their_group(
    monkeypatch: pytest.MonkeyPatch, rank: int, owner: Owner | None
) -> None:
    monkeypatch.setattr(torch.distributed, "get_process_group_ranks", lambda _: [4, 5])
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: rank)
    parallel = SimpleNamespace(broadcast_buffers=True, process_group=None)
    assert torch_modules._parallel_owner(parallel) is owner


def parallel(module: nn.Module) -> nn.Module:
    """A module with DistributedDataParallel's names, without a process group."""
    kind = nn.parallel.DistributedDataParallel
    made = kind.__new__(kind)
    nn.Module.__init__(made)
    made.module = module
    return made


def owners_of_buffers(module: nn.Module) -> dict[str, Owner]:
    keys = KeyTable(rank=0)
    torch_modules.own_buffers(module, "net", SimpleNamespace(keys=keys))
    return {
        name.removesuffix(".running_mean"): owner
        for name, owner in keys.owners.items()
        if name.endswith(".running_mean")
    }


@pytest.mark.parametrize("owner", [None, Owner.ANOTHER])
def test_buffers_of_a_sharded_module_are_each_ranks_own(
    monkeypatch: pytest.MonkeyPatch, owner: Owner | None
) -> None:
    monkeypatch.setattr(torch_modules, "_have_shards", lambda _: True)
    monkeypatch.setattr(torch_modules, "_parallel_owner", lambda _: owner)
    inner = nn.Sequential(nn.BatchNorm1d(2))
    broadcast = {} if owner is None else {"net.0": owner}
    assert owners_of_buffers(inner) == {"net.0": Owner.EACH}
    assert owners_of_buffers(parallel(inner)) == broadcast
    around = nn.Sequential(parallel(inner), nn.BatchNorm1d(2))
    broadcast = {} if owner is None else {"net.0.0": owner}
    assert owners_of_buffers(around) == {**broadcast, "net.1": Owner.EACH}


def test_a_module_with_buffers_is_filled_in_place(ckpt: df.Checkpointer) -> None:
    model = Net()
    model(torch.randn(2, 3, 8, 8))
    save(ckpt, 1, {"model": model})
    live = Net()
    addresses = {name: p.data_ptr() for name, p in live.named_parameters()}
    scratch = live.scratch.clone()
    assert ckpt.restore({"model": live}) == 1
    assert state_bits(live) == state_bits(model)
    assert {name: p.data_ptr() for name, p in live.named_parameters()} == addresses
    assert torch.equal(live.scratch, scratch)
    assert "model.scratch" not in header(data_file(ckpt.path, 1))


def test_every_file_opens_with_safetensors_and_equals_the_live_state(
    ckpt: df.Checkpointer,
) -> None:
    model = Net()
    odd = {
        "c": torch.randn(3, dtype=torch.complex64),
        "empty": torch.empty(0),
        "n": torch.tensor(1),
    }
    save(ckpt, 1, {"model": model, **odd})
    path = data_file(ckpt.path, 1)
    stored = load_file(path)
    for name, tensor in model.state_dict().items():
        assert_same(stored[f"model.{name}"], tensor)
    assert torch.equal(torch.view_as_complex(stored["c"]), odd["c"])
    assert stored["empty"].shape == (0,)
    with safe_open(path, framework="pt") as file:
        assert file.get_slice("model.conv.weight")[1:3].shape == (2, 3, 3, 3)


def test_channels_last_weights(ckpt: df.Checkpointer) -> None:
    model = Net().to(memory_format=torch.channels_last)
    save(ckpt, 1, {"model": model})
    live = Net().to(memory_format=torch.channels_last)
    ckpt.restore({"model": live})
    assert state_bits(live) == state_bits(model)
    assert live.conv.weight.is_contiguous(memory_format=torch.channels_last)
    plain = Net()
    ckpt.restore({"model": plain})
    assert state_bits(plain) == state_bits(model)


def test_wrappers_leave_no_trace_in_names(ckpt: df.Checkpointer) -> None:
    model = Net()
    compiled = torch.compile(nn.Sequential(torch.compile(model)))
    parallel = nn.DataParallel(compiled)
    save(ckpt, 1, {"model": parallel})
    assert "model.0.conv.weight" in header(data_file(ckpt.path, 1))
    live = nn.Sequential(Net())
    ckpt.restore({"model": live})
    assert state_bits(live[0]) == state_bits(model)
    again = nn.DataParallel(nn.Sequential(Net()))
    ckpt.restore({"model": again})
    assert state_bits(again.module[0]) == state_bits(model)


def test_an_attribute_called_module_keeps_its_name(ckpt: df.Checkpointer) -> None:
    average = torch.optim.swa_utils.AveragedModel(Net())
    save(ckpt, 1, {"ema": average, "copy": copy.deepcopy(average.module)})
    assert "ema.module.conv.weight" in header(data_file(ckpt.path, 1))
    live = torch.optim.swa_utils.AveragedModel(Net())
    other = Net()
    average.update_parameters(Net())
    save(ckpt, 2, {"ema": average, "copy": average.module})
    ckpt.restore({"ema": live, "copy": other})
    assert state_bits(live) == state_bits(average)
    assert live.n_averaged == 1
    assert state_bits(other) == state_bits(average.module)


def test_a_storage_replaced_between_saves(ckpt: df.Checkpointer) -> None:
    model = nn.Linear(3, 3)
    save(ckpt, 1, {"model": model})
    model.weight.data = torch.full((3, 3), 5.0)
    save(ckpt, 2, {"model": model})
    assert ckpt.load(2)["model"]["weight"].tolist() == [[5.0] * 3] * 3
    assert ckpt.load(1)["model"]["weight"].tolist() != [[5.0] * 3] * 3


def test_state_that_changes_shape_between_saves(ckpt: df.Checkpointer) -> None:
    for step in (1, 2, 3):
        save(ckpt, step, {"x": torch.full((step, 2), float(step)), "n": [0] * step})
    for step in (1, 2, 3):
        live: dict[str, Any] = {"x": torch.zeros(step, 2), "n": [9]}
        assert ckpt.restore(live, step=step) == step
        assert live["x"].tolist() == [[float(step)] * 2] * step
        assert live["n"] == [0] * step


def test_frozen_parameters(ckpt: df.Checkpointer) -> None:
    model = Net()
    model.conv.requires_grad_(False)
    save(ckpt, 1, {"model": model})
    live = Net()
    live.conv.requires_grad_(False)
    ckpt.restore({"model": live})
    assert state_bits(live) == state_bits(model)
    assert not live.conv.weight.requires_grad
    assert live.head.weight.requires_grad


class WithExtra(nn.Linear):
    def __init__(self, note: object) -> None:
        super().__init__(2, 2)
        self.note = note

    def get_extra_state(self) -> object:
        return self.note

    def set_extra_state(self, state: object) -> None:
        self.note = state


@pytest.mark.parametrize("note", [{"scale": 2.0, "x": (1, None)}, torch.arange(3), 7])
def test_extra_state_goes_through_its_methods(ckpt: df.Checkpointer, note: object) -> None:
    model = nn.Sequential(nn.Linear(2, 2), WithExtra(note))
    save(ckpt, 1, {"model": model})
    live = nn.Sequential(nn.Linear(2, 2), WithExtra(None))
    weight = live[1].weight
    ckpt.restore({"model": live})
    assert str(live[1].note) == str(note)
    assert live[1].weight is weight
    assert_same(weight, model[1].weight)


class Transposed(nn.Linear):
    """Saves its weight in another layout, as an older version of it did."""

    def __init__(self) -> None:
        super().__init__(3, 2)
        self.register_state_dict_post_hook(Transposed._after_save)
        self.register_load_state_dict_pre_hook(Transposed._before_load)

    @staticmethod
    def _after_save(module: nn.Module, state: dict[str, Any], prefix: str, _: object) -> None:
        state[prefix + "weight"] = state[prefix + "weight"].t().clone()
        state[prefix + "version"] = 3

    @staticmethod
    def _before_load(module: nn.Module, state: dict[str, Any], prefix: str, *_: object) -> None:
        assert state.pop(prefix + "version") == 3
        state[prefix + "weight"] = state[prefix + "weight"].t()


def test_hooks_that_save_other_tensors_load_through_the_module(ckpt: df.Checkpointer) -> None:
    model = nn.Sequential(Transposed(), nn.Linear(2, 2))
    save(ckpt, 1, {"model": model})
    assert header(data_file(ckpt.path, 1))["model.0.weight"]["shape"] == [3, 2]
    live = nn.Sequential(Transposed(), nn.Linear(2, 2))
    ckpt.restore({"model": live})
    assert_same(live[0].weight, model[0].weight)
    assert_same(live[1].weight, model[1].weight)


class Numbered(nn.Linear):
    """Its state_dict() has numbers for names."""

    def state_dict(self, *_: Any, **__: Any) -> Any:
        return dict(enumerate(self._parameters.values()))

    def load_state_dict(self, state_dict: Mapping[Any, Any], *_: Any, **__: Any) -> None:
        with torch.no_grad():
            for place, value in enumerate(self._parameters.values()):
                value.copy_(state_dict[place])


def test_a_module_without_names_loads_in_its_own_way(ckpt: df.Checkpointer) -> None:
    saved, live = Numbered(2, 2), Numbered(2, 2)
    save(ckpt, 1, {"model": saved})
    ckpt.restore({"model": live})
    assert_same(live.weight, saved.weight)
    assert list(ckpt.load()["model"]) == [0, 1]


def test_a_hook_after_loading_is_called(ckpt: df.Checkpointer) -> None:
    model = nn.Linear(2, 2)
    save(ckpt, 1, {"model": model})
    live = nn.Linear(2, 2)
    seen: list[list[float]] = []
    live.register_load_state_dict_post_hook(lambda m, _: seen.append(m.bias.tolist()))
    ckpt.restore({"model": live})
    assert seen == [model.bias.tolist()]


def test_collisions_of_names_keep_both(ckpt: df.Checkpointer) -> None:
    state = {"a.b": torch.ones(1), "a": {"b": torch.zeros(1), "": torch.full((1,), 2.0)}, 1: 1,
             "1": torch.full((1,), 3.0)}  # fmt: skip
    loaded = round_trip(ckpt, state)
    assert [loaded["a.b"].item(), loaded["a"]["b"].item(), loaded["a"][""].item()] == [1, 0, 2]
    live = {"a.b": torch.zeros(1), "a": {"b": torch.ones(1), "": torch.ones(1)}, 1: 0,
            "1": torch.zeros(1)}  # fmt: skip
    ckpt.restore(live)
    assert [live["a.b"].item(), live["a"]["b"].item(), live["1"].item()] == [1, 0, 3]
    assert live[1] == 1


def test_tensors_in_tuples_are_filled_and_values_rebuilt(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"t": (torch.ones(2), 5, (torch.zeros(1), "new"))})
    tensor, inner = torch.zeros(2), torch.ones(1)
    live: dict[str, Any] = {"t": (tensor, 0, (inner, "old"))}
    ckpt.restore(live)
    assert live["t"][0] is tensor
    assert live["t"][2][0] is inner
    assert (tensor.tolist(), inner.tolist()) == ([1.0, 1.0], [0.0])
    assert (live["t"][1], live["t"][2][1]) == (5, "new")


def test_a_tuple_whose_parts_are_all_filled_stays(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"t": (torch.ones(2), [5], {"k": 6})})
    live: dict[str, Any] = {"t": (torch.zeros(2), [0], {"k": 0})}
    held = live["t"]
    ckpt.restore(live)
    assert live["t"] is held
    assert (held[0].tolist(), held[1:]) == ([1.0, 1.0], ([5], {"k": 6}))


def test_none_and_empty_containers_take_what_was_saved(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"a": torch.ones(2), "b": [torch.zeros(1)], "c": {"d": torch.ones(1)}})
    held: list[Any] = []
    live: dict[str, Any] = {"a": None, "b": held, "c": {}}
    ckpt.restore(live)
    assert live["a"].tolist() == [1.0, 1.0]
    assert live["b"] is held
    assert held[0].tolist() == [0.0]
    assert live["c"]["d"].tolist() == [1.0]


def test_partial_transfer_leaves_the_rest_untouched(ckpt: df.Checkpointer) -> None:
    source = Net()
    save(ckpt, 1, {"model": source, "epoch": 3})
    live = Net()
    live.head = nn.Linear(4, 10)
    head = bits(live.head.weight)
    state = {"model": live, "epoch": 0}
    assert ckpt.restore(state, keys=["model.conv.*", "model.bn.*"]) == 1
    assert_same(live.conv.weight, source.conv.weight)
    assert bits(live.head.weight) == head
    assert state["epoch"] == 0


def test_load_by_pattern(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"model": Net(), "other": torch.ones(1), "n": 1})
    loaded = ckpt.load(keys=["model.head.*"])
    assert list(loaded) == ["model"]
    assert list(loaded["model"]) == ["head.weight", "head.bias"]


def test_two_checkpointers_at_once(tmp_path: Path) -> None:
    model, ema = nn.Linear(64, 64), nn.Linear(64, 64)
    with df.Checkpointer(tmp_path / "a") as one, df.Checkpointer(tmp_path / "b") as two:
        handles = []
        for step in range(1, 6):
            handles += [one.save(step, {"m": model}), two.save(step, {"m": ema})]
        for handle in handles:
            assert handle is not None
            handle.wait()
        assert_same(one.load()["m"]["weight"], model.weight)
        assert_same(two.load()["m"]["weight"], ema.weight)
        assert one.steps() == two.steps() == [1, 2, 3, 4, 5]


def test_the_caller_may_change_its_state_at_once(ckpt: df.Checkpointer) -> None:
    tensor = torch.zeros(1 << 20)
    for step in range(1, 6):
        tensor.fill_(step)
        ckpt.save(step, {"x": tensor, "t": tensor.view(1024, 1024).t()})
        tensor.fill_(-1)
    ckpt.wait()
    for step in range(1, 6):
        loaded = ckpt.load(step)
        assert (loaded["x"] == step).all()
        assert (loaded["t"] == step).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_tensors_go_through_the_host(ckpt: df.Checkpointer) -> None:
    model = Net().cuda()
    save(ckpt, 1, {"model": model})
    live = Net().cuda()
    ckpt.restore({"model": live})
    assert state_bits(live.cpu()) == state_bits(model.cpu())
