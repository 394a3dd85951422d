"""What stands before each tensor is remembered from save to save: whatever changes is seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
import torch
from torch import nn

from deepfreeze.capture import Capture, walk
from deepfreeze.guards import Guards, _Finder
from deepfreeze.memo import Memo

WIDE = 128  # its square is 64 KiB: worth a guard


# The guard of each entry by its key, and what is watched for each guard: keys and tensors.
Answer: TypeAlias = tuple[dict[str, int], dict[int, list[tuple[str, int]]]]


class Attached:
    """A state and what guards it, as a checkpointer has them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from deepfreeze.adapters.torch_guards import make_guard

        self.net = nn.Sequential(nn.Linear(WIDE, WIDE), nn.Linear(WIDE, WIDE))
        self.optimizer = torch.optim.Adam(self.net.parameters())
        self.update()
        self.state: dict[str, Any] = {"net": self.net, "optim": self.optimizer}
        self.memo = Memo()
        self.guards = Guards()
        self.make = make_guard
        self.attach(self.optimizer)
        self.searches = 0
        find = _Finder.find

        def counted(*arguments: Any) -> Any:
            self.searches += 1
            return find(*arguments)

        monkeypatch.setattr(_Finder, "find", counted)

    def attach(self, target: object) -> None:
        self.guards.add(self.make(target, "window", self.nothing, self.nothing))

    def nothing(self, _: int) -> None:
        """What hooks call."""

    def update(self) -> None:
        for parameter in self.net.parameters():
            parameter.grad = torch.ones_like(parameter)
        self.optimizer.step()

    def watch(self) -> Answer:
        """As a save asks; and it is what a new look at the same would find."""
        capture = walk(self.state, self.memo)
        found = self.ask(capture)
        searches, memo = self.searches, self.guards._memo
        self.guards._memo = None
        assert self.ask(capture) == found
        self.searches, self.guards._memo = searches, memo
        return found

    def ask(self, capture: Capture) -> Answer:
        watches = self.guards.watch(capture.entries, capture.tensors)
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
        count_otherwise, attach_more, attach_another, find_torn, add_a_part, rename,
    ],
)  # fmt: skip
def test_what_has_changed_is_looked_for(
    attached: Attached, change: Callable[[Attached], None]
) -> None:
    change(attached)
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
