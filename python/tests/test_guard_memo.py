"""The guard of each tensor is remembered from save to save, and every change is seen."""

from __future__ import annotations

import ctypes
import gc
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch
from torch import nn

import deepfreeze as df
from deepfreeze.frameworks.torch.guards import OptimizerGuard
from deepfreeze.saving.capture import Capture, table_of, walk
from deepfreeze.saving.guards import LAZY_BYTES_MIN, Guards, _Finder
from deepfreeze.state.entry import HOST
from deepfreeze.state.memo import Memo

WIDE = 128  # its square is 64 KiB: worth a guard


# The guard of each entry by its key, and the watches of each guard: keys and tensors.
Answer: TypeAlias = tuple[dict[str, int], dict[int, list[tuple[str, int]]]]


class Attached:
    """A state and its guards, as a checkpointer has them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from deepfreeze.frameworks.torch.guards import make_guard

        self.net = nn.Sequential(nn.Linear(WIDE, WIDE), nn.Linear(WIDE, WIDE))
        self.optimizer = torch.optim.Adam(self.net.parameters())
        self.update()
        self.state: dict[str, Any] = {"net": self.net, "optim": self.optimizer}
        self.memo = Memo()
        self.guards = Guards()
        self.device = HOST  # as if all lay there
        self.make = make_guard
        self.attach(self.optimizer)
        self.searches = 0
        self.is_kept = False  # the last answer, for all of the series of entries
        find = _Finder.find

        def counted(*arguments: Any) -> Any:
            self.searches += 1
            return find(*arguments)

        monkeypatch.setattr(_Finder, "find", counted)

    def attach(self, target: object) -> None:
        self.guards.add(self.make(target, "window", self.nothing, self.nothing))

    def nothing(self, _: int) -> None:
        """The function that hooks call."""

    def update(self) -> None:
        for parameter in self.net.parameters():
            parameter.grad = torch.ones_like(parameter)
        self.optimizer.step()

    def watch(self) -> Answer:
        """Asks as a save does; the answer must equal that of a new examination."""
        capture = walk(self.state, self.memo)
        for entry in capture.entries:
            entry.device = self.device
        found = self.ask(capture)
        is_kept = self.is_kept
        searches, memo, kept = self.searches, self.guards._memo, self.guards._kept
        self.guards._memo = self.guards._kept = None
        assert self.ask(capture) == found
        self.searches, self.guards._memo, self.guards._kept = searches, memo, kept
        self.is_kept = is_kept
        table_of(capture.own_entries(), self.memo)
        return found

    def ask(self, capture: Capture) -> Answer:
        watches, self.is_kept = self.guards.watch(capture)
        guards = {entry.key: entry.guard for entry in capture.entries}
        watched = {
            number: list(zip(watch._keys, map(id, watch._tensors), strict=True))
            for number, watch in watches.items()
        }
        return guards, watched

    def settle(self) -> None:
        """Until walks find the same."""
        for _ in range(3):
            self.watch()
        self.searches = 0


@pytest.fixture
def attached(monkeypatch: pytest.MonkeyPatch) -> Attached:
    made = Attached(monkeypatch)
    made.settle()
    return made


def test_what_is_as_it_was_is_not_looked_for(attached: Attached) -> None:
    guards, watched = attached.watch()
    assert attached.searches == 0
    # Two weights, their moments, and with each the step count that a fused update changes alone.
    assert sum(number > 0 for number in guards.values()) == 6
    assert [len(pairs) for pairs in watched.values()] == [8]


def test_small_tensors_may_move(attached: Attached) -> None:
    """The state of a generator is a new tensor at each save, and needs no guard."""
    attached.state["random"] = torch.get_rng_state()
    attached.settle()
    held = [attached.state["random"]]  # so that the next one can't have its memory
    for _ in range(3):
        held.append(torch.get_rng_state())
        attached.state["random"] = held[-1]
        guards, watched = attached.watch()
        assert attached.is_kept
        assert (guards["random"], guards["net.0.weight"]) == (0, 1)
        assert [len(pairs) for pairs in watched.values()] == [8]


def test_a_small_tensor_is_stored_from_where_it_lies_now(tmp_path: Path) -> None:
    net = nn.Linear(WIDE, WIDE)
    optimizer = torch.optim.SGD(net.parameters())
    held: list[torch.Tensor] = []
    with df.Checkpointer(tmp_path / "run", keep=df.keep(last=9)) as ckpt:
        ckpt.attach(optimizer)
        for step in range(1, 7):
            held.append(torch.full((8,), float(step)))
            state = {"blob": bytes(5000), "net": net, "random": held[-1]}
            handle = ckpt.save(step, state)
            assert handle is not None
            handle.wait("durable")
        for step, value in enumerate(held, 1):
            assert torch.equal(ckpt.load(step)["random"], value)


def test_memory_that_the_program_lets_go_is_held_by_a_walk_that_recalls() -> None:
    """Of tensors, and of storages: a tensor may be given another one while it is copied."""
    net, memo = nn.Linear(WIDE, WIDE), Memo()
    for _ in range(3):
        capture = walk({"net": net}, memo)
    weight = net.weight
    address, expected = weight.data_ptr(), weight.detach().clone()
    weight.data = torch.zeros(WIDE, WIDE)
    del net, weight
    gc.collect()
    # Nothing else gets the memory of a storage that is held.
    others = [torch.zeros(WIDE, WIDE) for _ in range(50)]
    assert all(other.data_ptr() != address for other in others)
    entry = next(each for each in capture.entries if each.key == "net.weight")
    assert ctypes.string_at(entry.address, entry.bytes) == expected.numpy().tobytes()


@pytest.mark.parametrize("rank", [None, 0])
def test_entries_that_moved_are_counted_among_a_ranks_own(rank: int | None) -> None:
    memo, held = Memo(), [torch.zeros(8)]
    own = df.PerRank(1) if rank is not None else 1
    net = nn.Linear(4, 4)
    for count in range(4):
        held.append(torch.full((8,), float(count)))
        state = {"blob": bytes(5000), "own": own, "net": net, "random": held[-1]}
        capture = walk(state, memo, rank)
        if rank is not None:  # another rank stores it
            next(each for each in capture.entries if each.key == "net.weight").is_anothers = True
        moved, entries = capture.moved(), capture.own_entries()
        table_of(entries, memo)
    assert moved is not None
    assert [entries[place].key for place in moved] == ["random"]
    assert entries[moved[0]].address == held[-1].data_ptr()


def test_a_large_tensor_that_moves_is_looked_at(attached: Attached) -> None:
    attached.state["large"] = torch.ones(WIDE, WIDE)
    attached.settle()
    held = [attached.state["large"]]
    for _ in range(3):
        held.append(torch.ones(WIDE, WIDE))
        attached.state["large"] = held[-1]
        attached.watch()
        assert not attached.is_kept


def test_a_watched_tensor_that_moves_is_looked_at(attached: Attached) -> None:
    """A step count is small and has no guard, but it is watched for the moments beside it."""
    states = attached.optimizer.state
    # With a number in it, the state is no object that is recalled: each tensor is asked.
    states[attached.net[0].weight]["note"] = 0.5
    attached.settle()
    attached.watch()
    assert attached.is_kept
    state, held = states[attached.net[0].weight], [states[attached.net[0].weight]["step"]]
    for count in range(3):
        held.append(torch.tensor(float(count)))
        state["step"] = held[-1]
        attached.watch()
        assert not attached.is_kept


def test_a_tensor_that_moves_may_be_watched_then(attached: Attached) -> None:
    """One of inference mode counts no versions, so a step count of that kind is not watched."""
    state = attached.optimizer.state[attached.net[0].weight]
    with torch.inference_mode():
        held = [torch.tensor(1.0)]
    state["step"] = held[0]
    attached.settle()
    assert [len(pairs) for pairs in attached.watch()[1].values()] == [7]
    held.append(torch.tensor(2.0))
    state["step"] = held[-1]
    assert [len(pairs) for pairs in attached.watch()[1].values()] == [8]


def test_objects_of_an_optimizer_are_those_that_python_finds(attached: Attached) -> None:
    guard = next(iter(attached.guards))
    assert isinstance(guard, OptimizerGuard)

    def are_the_same() -> bool:
        found, by_python = guard.objects(), guard._values() + guard._names()
        return found is not None and [*map(id, found)] == [*map(id, by_python)]

    states = attached.optimizer.state
    assert are_the_same()
    states[attached.net[0].weight]["note"] = 0.5
    assert are_the_same()
    states[attached.net[0].weight] = OrderedDict(states[attached.net[0].weight])
    assert are_the_same()
    states["not a parameter"] = 7
    assert are_the_same()
    attached.optimizer.param_groups[0]["params"] = tuple(attached.net.parameters())
    assert are_the_same()


def test_updates_change_nothing_of_it(attached: Attached) -> None:
    attached.update()
    assert attached.watch()[0]["net.0.weight"] == 1
    assert attached.searches == 0


def give_another_weight(attached: Attached) -> None:
    attached.net[0].weight = nn.Parameter(torch.ones(WIDE, WIDE))  # not the optimizer's


def move_a_weight(attached: Attached) -> None:
    attached.net[0].weight.data = attached.net[0].weight.data.clone()


def move_a_moment(attached: Attached) -> None:
    state = attached.optimizer.state[attached.net[0].weight]
    state["exp_avg"] = state["exp_avg"].clone()


def swap_moments(attached: Attached) -> None:
    state = attached.optimizer.state[attached.net[0].weight]
    state["exp_avg"].data, state["exp_avg_sq"].data = (
        state["exp_avg_sq"].data, state["exp_avg"].data,
    )  # fmt: skip


def forget_a_parameter(attached: Attached) -> None:
    attached.optimizer.param_groups[0]["params"].pop(0)
    attached.optimizer.state.pop(attached.net[0].weight)


def count_otherwise(attached: Attached) -> None:
    attached.optimizer.state[attached.net[0].weight]["step"] = torch.tensor(7.0)


def note_a_number(attached: Attached) -> None:
    """Every tensor is in its old memory, but not in its old place among all the others."""
    state = attached.optimizer.state[attached.net[0].weight]
    values = dict(state)
    state.clear()
    state.update({"note": 0.5, **values})


def attach_more(attached: Attached) -> None:
    attached.attach(attached.net)


def attach_another(attached: Attached) -> None:
    attached.guards.remove(None)
    attached.attach(attached.net)


def find_torn(attached: Attached) -> None:
    attached.guards.eager.add("net.0.weight")


def add_a_part(attached: Attached) -> None:
    attached.state["more"] = {"x": torch.ones(WIDE, WIDE), "y": attached.net[1].weight}


def rename(attached: Attached) -> None:
    attached.state = {"other": attached.net, "optim": attached.optimizer}


@pytest.mark.parametrize(
    "change",
    [
        give_another_weight, move_a_weight, move_a_moment, swap_moments, forget_a_parameter,
        count_otherwise, note_a_number, attach_more, attach_another, find_torn, add_a_part, rename,
    ],
)  # fmt: skip
def test_what_has_changed_is_looked_for(
    attached: Attached, change: Callable[[Attached], None]
) -> None:
    change(attached)
    attached.watch()
    assert attached.searches > 0


def test_whose_state_it_is_counts_where_it_is_not_saved(attached: Attached) -> None:
    attached.state = {"net": attached.net}
    attached.settle()
    first, second, *_ = states = attached.optimizer.state
    held = dict(states)
    states.clear()
    # Values in the order in which they were, each another parameter's.
    states.update({second: held[first], first: held[second]})
    states.update({each: held[each] for each in held if each not in states})
    attached.watch()
    assert attached.searches > 0


def test_a_tensor_that_moves_from_an_alias_of_it_has_no_guard(attached: Attached) -> None:
    """Entry and objects are the same: the roll call alone sees it."""
    weight = attached.net[0].weight
    attached.state = {"w": weight.detach(), "optim": attached.optimizer}
    attached.settle()
    assert attached.watch()[0]["w"] == 1
    weight.data = weight.data.clone()
    assert attached.watch()[0]["w"] == 0


def test_a_copy_under_the_same_name_has_no_guard(attached: Attached) -> None:
    weight = attached.net[0].weight.detach()
    attached.state = {"w": weight, "optim": attached.optimizer}
    attached.settle()
    attached.state["w"] = weight.clone()
    assert attached.watch()[0]["w"] == 0


def test_more_than_the_guard_stands_before_has_none(attached: Attached) -> None:
    base = torch.ones(2 * WIDE, WIDE)
    attached.net[0].weight.data = base[:WIDE]
    attached.state = {"w": base[:WIDE], "optim": attached.optimizer}
    attached.settle()
    assert attached.watch()[0]["w"] == 1
    attached.state["w"] = base
    assert attached.watch()[0]["w"] == 0


def test_on_a_device_it_depends_on_whether_hooks_run(attached: Attached) -> None:
    """An update that is replayed from a graph runs none, and so has no fence."""
    attached.device = 0
    attached.memo = Memo()  # a tensor that goes to a device makes a new entry
    for captured, guard in ((None, 0), (False, 1), (True, 0)):
        if captured is not None:
            attached.guards.note_hook(1, captured)
        for _ in range(3):
            assert attached.watch()[0]["net.0.weight"] == guard


def test_a_tensor_of_inference_in_the_place_of_another_is_not_watched(attached: Attached) -> None:
    memory = bytearray(4 * WIDE * WIDE)
    state = attached.optimizer.state[attached.net[0].weight]
    state["exp_avg"] = torch.frombuffer(memory, dtype=torch.float32).view(WIDE, WIDE)
    attached.settle()
    key = "optim.state.0.weight.exp_avg"
    assert attached.watch()[0][key] == 1
    known = id(state["exp_avg"])
    for _ in range(1000):
        state["exp_avg"] = None
        with torch.inference_mode():
            state["exp_avg"] = torch.frombuffer(memory, dtype=torch.float32).view(WIDE, WIDE)
        if id(state["exp_avg"]) == known:
            break
    assert attached.watch()[0][key] == 0


def test_another_object_in_the_same_place_answers_for_it(attached: Attached) -> None:
    """The part of a DTensor that this rank has is a new object each time that it is asked for."""
    state = attached.optimizer.state[attached.net[0].weight]
    attached.state = {"net": attached.net}
    attached.settle()
    state["exp_avg"] = state["exp_avg"].detach()
    attached.watch()
    assert attached.searches == 0
    state["exp_avg"] = state["exp_avg"].view(WIDE * WIDE)
    attached.watch()
    assert attached.searches > 0


def test_a_tensor_beside_the_guards_own_is_watched_too(attached: Attached) -> None:
    """Other tensors of the same memory come and go: each counts its versions apart."""
    attached.state = {"net": dict(attached.net.state_dict()), "optim": attached.optimizer}
    attached.settle()
    for _ in range(2):
        beside = {name: value.data for name, value in attached.net.state_dict().items()}
        attached.state["net"] = beside
        _, watched = attached.watch()
        assert ("net.0.weight", id(beside["0.weight"])) in watched[1]
        assert ("net.0.weight", id(attached.net[0].weight)) in watched[1]
    assert attached.searches == 0


def test_a_parameter_that_its_optimizer_lets_go_has_no_guard(attached: Attached) -> None:
    """The state is as it was, and nothing of it has moved."""
    optimizer = torch.optim.SGD(attached.net.parameters())
    attached.guards.remove(attached.optimizer)
    attached.attach(optimizer)
    attached.state = {"net": attached.net}
    attached.settle()
    assert attached.watch()[0]["net.1.weight"] == 2
    del optimizer.param_groups[0]["params"][2]
    assert attached.watch()[0]["net.1.weight"] == 0


def test_a_value_beside_the_tensors_that_has_grown_is_looked_at(attached: Attached) -> None:
    attached.state["blob"] = bytes(5000)
    attached.settle()
    assert attached.searches == 0
    attached.state["blob"] = bytes(LAZY_BYTES_MIN)
    attached.watch()
    assert attached.searches > 0


def test_a_tensor_that_is_not_saved_may_come_to_lie_in_one_that_is(attached: Attached) -> None:
    """Then two optimizers write it, and a fence before one is too late for the other."""
    other = nn.Parameter(torch.ones(WIDE, WIDE))
    attached.attach(torch.optim.SGD([other]))
    attached.settle()
    assert attached.watch()[0]["net.0.weight"] == 1
    other.data = attached.net[0].weight.data
    assert attached.watch()[0]["net.0.weight"] == 0


def test_an_alias_in_the_place_of_a_tensor_counts_for_itself(attached: Attached) -> None:
    """The tensor was there twice. Its .data counts versions apart."""
    tensor = torch.zeros(WIDE, WIDE)
    attached.guards.remove(attached.optimizer)
    attached.attach(torch.optim.SGD([tensor]))
    attached.state = {"a": tensor, "b": tensor}
    attached.settle()
    assert [len(pairs) for pairs in attached.watch()[1].values()] == [1]
    attached.state["b"] = tensor.data
    for _ in range(3):
        assert [len(pairs) for pairs in attached.watch()[1].values()] == [2]
