"""Modules and optimizers that changed between two saves are never recalled as they were."""

from __future__ import annotations

import gc
import itertools
import operator
import random
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import torch
from test_memo import told
from torch import nn
from torch.nn.utils import parametrizations

import deepfreeze as df
from deepfreeze.errors import EncodeError
from deepfreeze.frameworks.torch import recall as torch_recall
from deepfreeze.frameworks.torch.recall import ModuleRecall, OptimizerRecall
from deepfreeze.saving.capture import walk
from deepfreeze.state.memo import Memo

CHANGES_PER_STATE = 10
STATES = 60
LINES_MAX = 3000  # of a walk over two modules

State = dict[str, Any]


class Counting(nn.Linear):
    """Its state_dict() says something new each time."""

    calls = 0

    def get_extra_state(self) -> Any:
        self.calls += 1
        return {"calls": self.calls % 2}


def start(seed: int) -> State:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Sequential(nn.Linear(5, 2)))
    optim = torch.optim.Adam(net.parameters())
    state = {"net": net, "optim": optim}
    train(state)
    return state


def train(state: State) -> None:
    for parameter in state["net"].parameters():
        parameter.grad = torch.ones_like(parameter)
    state["optim"].step()


def first_state(state: State) -> dict[str, Any]:
    found: Any = next(iter(state["optim"].state.values()), {})
    return found if isinstance(found, dict) else {}


def new_weight(state: State) -> None:
    state["net"][0].weight = nn.Parameter(torch.randn(5, 3))


def new_data(state: State) -> None:
    state["net"][0].weight.data = torch.randn(5, 3)


def other_dtype(state: State) -> None:
    state["net"][0].bias.data = torch.randn(5, dtype=torch.float64)


def other_layout(state: State) -> None:
    weight = state["net"][0].weight
    weight.data = torch.randn(weight.shape[1], weight.shape[0]).t()


def fewer_rows(state: State) -> None:
    weight = state["net"][0].weight
    weight.data = weight.data[: max(1, len(weight) - 1)]


def no_bias(state: State) -> None:
    state["net"][2][0].bias = None


def buffer(state: State) -> None:
    state["net"].register_buffer("extra", torch.randn(4))


def hidden_buffer(state: State) -> None:
    state["net"].register_buffer("extra", torch.randn(4), persistent=False)


def hide_buffer(state: State) -> None:
    state["net"][1]._non_persistent_buffers_set ^= {"running_mean"}


def hide_another_buffer(state: State) -> None:
    names = state["net"][1]._non_persistent_buffers_set
    hidden = "running_var" if "running_mean" in names else "running_mean"
    state["net"][1]._non_persistent_buffers_set = {hidden}


def no_buffer(state: State) -> None:
    state["net"]._buffers.pop("extra", None)


def tie(state: State) -> None:
    state["net"][1].weight = state["net"][0].bias


def submodule(state: State) -> None:
    state["net"].add_module(f"m{len(state['net'])}", nn.Linear(2, 2))


def shared_submodule(state: State) -> None:
    state["net"].add_module("again", state["net"][0])


def swap_submodules(state: State) -> None:
    modules = state["net"]._modules
    modules["0"], modules["2"] = modules["2"], modules["0"]


def rename_submodule(state: State) -> None:
    modules = state["net"]._modules
    if "1" in modules:
        modules["one"] = modules.pop("1")
        modules["1"] = nn.BatchNorm1d(5)


def reorder_names(state: State) -> None:
    state["net"][0]._parameters = dict(reversed(state["net"][0]._parameters.items()))


def hook(state: State) -> None:
    def add(_: Any, found: Any, prefix: str, __: Any) -> None:
        found[prefix + "hooked"] = torch.ones(2)

    state["net"][2]._register_state_dict_hook(add)


def own_state_dict(state: State) -> None:
    state["net"][0].state_dict = lambda *args, **kwargs: {"own": torch.ones(3)}


def own_saving(state: State) -> None:
    def save(found: Any, prefix: str, _: bool) -> None:
        found[prefix + "saved"] = torch.ones(3)

    state["net"][2]._save_to_state_dict = save


def extra_state(state: State) -> None:
    state["net"].add_module("counting", Counting(2, 2))


def other_class(state: State) -> None:
    if isinstance(state["net"][2], nn.Sequential):
        state["net"][2].__class__ = type("Renamed", (nn.Sequential,), {})


class OwnSaving(nn.Sequential):
    def _save_to_state_dict(self, found: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(found, prefix, keep_vars)
        found[prefix + "more"] = torch.ones(2)


def class_with_own_saving(state: State) -> None:
    inner = state["net"][2]
    if type(inner) in (nn.Sequential, OwnSaving):
        inner.__class__ = OwnSaving if type(inner) is nn.Sequential else nn.Sequential


def parametrize(state: State) -> None:
    inner = state["net"][2]
    if isinstance(inner, nn.Sequential) and not hasattr(inner[0], "parametrizations"):
        parametrizations.weight_norm(inner[0])


def wrap(state: State) -> None:
    state["net"] = nn.DataParallel(nn.Sequential(*state["net"].children()))


def unwrap(state: State) -> None:
    if isinstance(state["net"], nn.DataParallel):
        state["net"] = state["net"].module


def namesake(state: State) -> None:
    state["other"] = nn.Sequential(nn.Linear(3, 5))


def no_namesake(state: State) -> None:
    state.pop("other", None)


def deeper(state: State) -> None:
    state["inside"] = {"net": nn.Sequential(state["net"][0])}


def rename_module(state: State) -> None:
    net = state["net"]
    state["old"] = nn.Linear(1, 1)
    state["net"], state["old"] = net, state["old"]


def negated(state: State) -> None:
    mean = state["net"][1].running_mean
    mean.data = torch._neg_view(mean.data)


def reinterpreted(state: State) -> None:
    mean = state["net"][1].running_mean
    mean.data = mean.data.view(torch.int32 if mean.dtype == torch.float32 else torch.float32)


def flattened(state: State) -> None:
    moment = first_state(state)["exp_avg"]
    moment.data = moment.data.view(-1) if moment.dim() > 1 else moment.data.view(1, -1)


def transposed(state: State) -> None:
    first_state(state)["exp_avg"].t_()


def transposed_square(state: State) -> None:
    moment = first_state(state)["exp_avg"]
    if moment.shape == (4, 4):
        moment.t_()
    else:
        first_state(state)["exp_avg"] = torch.randn(4, 4).t()


def conjugated(state: State) -> None:
    buffers = state["net"]._buffers
    known = buffers.get("complex")
    if known is None:
        known = buffers["complex"] = torch.randn(3, dtype=torch.complex64)
    known.data = known.data.conj()


def shrunk(state: State) -> None:
    state["net"][1].running_mean.untyped_storage().resize_(8)


def emptied(state: State) -> None:
    state["net"][1].running_var.untyped_storage().resize_(0)


def sparse(state: State) -> None:
    first_state(state)["exp_avg"] = torch.eye(3).to_sparse()


def swapped_for_sparse(state: State) -> None:
    torch.utils.swap_tensors(first_state(state)["exp_avg"], torch.eye(3).to_sparse())


def swapped_for_quantised(state: State) -> None:
    other = torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8)
    torch.utils.swap_tensors(first_state(state)["exp_avg"], other)


def swapped_for_meta(state: State) -> None:
    torch.utils.swap_tensors(first_state(state)["exp_avg"], torch.empty(3, device="meta"))


def swapped_for_longer(state: State) -> None:
    torch.utils.swap_tensors(first_state(state)["exp_avg_sq"], torch.randn(7))


def other_class_of_moment(state: State) -> None:
    first_state(state)["exp_avg"].__class__ = type("Own", (torch.Tensor,), {})


def without_memory(state: State) -> None:
    state["net"][1].running_var = torch.empty(5, device="meta")


def param_group(state: State) -> None:
    state["optim"].add_param_group({"params": [nn.Parameter(torch.randn(2))], "lr": 0.5})


def regroup(state: State) -> None:
    params = state["optim"].param_groups[0]["params"]
    params.append(params.pop(0))


def replace_in_group(state: State) -> None:
    state["optim"].param_groups[0]["params"][0] = nn.Parameter(torch.randn(3))


def learning_rate(state: State) -> None:
    state["optim"].param_groups[0]["lr"] *= 0.5


def tensor_rate(state: State) -> None:
    state["optim"].param_groups[0]["lr"] = torch.tensor(0.1)


def forget(state: State) -> None:
    state["optim"].state.pop(next(iter(state["optim"].state), None), None)


def new_moment(state: State) -> None:
    first_state(state)["exp_avg"] = torch.randn(4)


def new_key(state: State) -> None:
    first_state(state)["more"] = torch.randn(4)


def nested(state: State) -> None:
    first_state(state)["nested"] = first_state(state).get("nested") or OrderedDict()
    first_state(state)["nested"]["x"] = torch.randn(3)


def share_data(state: State) -> None:
    base = torch.randn(20)
    state["net"][0].weight.data = base[:15].view(5, 3)
    state["net"][0].bias.data = base[10:15]


def rename_key(state: State) -> None:
    inner = first_state(state)
    renamed = {key + "_": value for key, value in inner.items()}
    inner.clear()
    inner.update(renamed)


def rename_parameter(state: State) -> None:
    inner = state["net"][0]
    inner._parameters = {name + "_": value for name, value in inner._parameters.items()}


def other_parameter_class(state: State) -> None:
    weight = state["net"][0].weight
    weight.__class__ = type("Own", (nn.Parameter,), {})


def number(state: State) -> None:
    first_state(state)["count"] = len(state["optim"].state)


def reorder_keys(state: State) -> None:
    inner = first_state(state)
    if inner:
        key = next(iter(inner))
        inner[key] = inner.pop(key)


def reorder_state(state: State) -> None:
    whole = state["optim"].state
    if whole:
        key = next(iter(whole))
        whole[key] = whole.pop(key)


def other_dict(state: State) -> None:
    whole = state["optim"].state
    for key in list(whole)[:1]:
        whole[key] = OrderedDict(whole[key])


def no_dict(state: State) -> None:
    for key in list(state["optim"].state)[:1]:
        state["optim"].state[key] = 7


def no_parameters_state(state: State) -> None:
    state["optim"].state["scale"] = {"x": torch.ones(2)}


def step(state: State) -> None:
    train(state)


def other_optimizer(state: State) -> None:
    state["optim"] = torch.optim.SGD(state["net"].parameters(), momentum=0.9)
    train(state)


def nothing(state: State) -> None:
    del state


CHANGES: list[Callable[[State], None]] = [
    new_weight, new_data, other_dtype, other_layout, fewer_rows, no_bias, buffer, hidden_buffer,
    hide_buffer, no_buffer, tie, submodule, shared_submodule, swap_submodules, rename_submodule,
    reorder_names, hook, own_state_dict, own_saving, extra_state, other_class, parametrize,
    hide_another_buffer, class_with_own_saving,
    wrap, unwrap, namesake, no_namesake, deeper, rename_module, param_group, regroup,
    replace_in_group, learning_rate, tensor_rate, forget, new_moment, new_key, nested,
    share_data, negated, reinterpreted, flattened, transposed, transposed_square, conjugated,
    shrunk, emptied, sparse, without_memory, swapped_for_sparse, swapped_for_quantised,
    swapped_for_meta, swapped_for_longer, other_class_of_moment, rename_key, rename_parameter,
    other_parameter_class, number, reorder_keys, reorder_state, other_dict, no_dict,
    no_parameters_state, step, other_optimizer, nothing,
]  # fmt: skip


def outcome(state: State, memo: Memo | None) -> object:
    """The stored form that a walk gives, or its error."""
    for module in state.values():
        for inner in module.modules() if isinstance(module, nn.Module) else ():
            if isinstance(inner, Counting):
                inner.calls = 0  # else two walks in a row are not meant to find the same
    try:
        return told(walk(state, memo))
    except EncodeError as error:
        return str(error)


def expect_the_same(state: State, memo: Memo, changes: list[str]) -> None:
    assert outcome(state, memo) == outcome(state, None), changes


@pytest.mark.parametrize("change", CHANGES)
def test_one_change_after_a_recall(change: Callable[[State], None]) -> None:
    state, memo = start(1), Memo()
    for _ in range(3):
        expect_the_same(state, memo, [])
    for _ in range(2):
        change(state)
        expect_the_same(state, memo, [change.__name__])
    expect_the_same(state, memo, [change.__name__, "again"])


@pytest.mark.parametrize("seed", range(STATES))
def test_many_changes(seed: int) -> None:
    draw = random.Random(seed)
    state, memo, changes = start(seed), Memo(), []
    for _ in range(CHANGES_PER_STATE):
        for change in draw.choices(CHANGES, k=draw.randrange(1, 3)):
            try:
                change(state)
            except (AttributeError, KeyError, TypeError, RuntimeError):  # after others it can't
                continue
            changes.append(change.__name__)
        expect_the_same(state, memo, changes)


def test_tensors_that_share_memory_no_more() -> None:
    state, memo = start(6), Memo()
    expect_the_same(state, memo, [])
    for change in (share_data, nothing, new_data, nothing, share_data, fewer_rows):
        change(state)
        expect_the_same(state, memo, [change.__name__])


def test_state_that_another_parameter_has_now() -> None:
    state, memo = start(5), Memo()
    whole = state["optim"].state
    one, other = list(whole)[:2]
    for key in list(whole)[1:]:
        del whole[key]
    for _ in range(2):
        expect_the_same(state, memo, [])
    whole[other] = whole.pop(one)
    expect_the_same(state, memo, ["moved"])


def test_a_key_that_the_next_parameter_has_now() -> None:
    state, memo = start(7), Memo()
    one, other = list(state["optim"].state.values())[:2]
    one["more"] = torch.randn(4)
    for _ in range(2):
        expect_the_same(state, memo, [])
    later = {"more": one.pop("more"), **other}
    other.clear()
    other.update(later)
    expect_the_same(state, memo, ["moved"])


def test_memory_that_shrank_and_lies_where_it_lay() -> None:
    state, memo = start(10), Memo()
    spare = torch.zeros(10_000_000)  # more than malloc keeps: it is mapped, and the hole re-used
    state["net"].register_buffer("spare", spare)
    for _ in range(2):
        expect_the_same(state, memo, [])
    place, storage = spare.data_ptr(), spare.untyped_storage()
    for size in range(39_999_900, 39_999_000, -64):
        storage.resize_(size)  # this moves it, sooner or later to its old place
        if spare.data_ptr() == place:
            break
    assert spare.data_ptr() == place
    expect_the_same(state, memo, ["shrunk"])


def test_parameters_can_be_swapped_after_a_save() -> None:
    state, memo = start(8), Memo()
    expect_the_same(state, memo, [])
    weight = state["net"][0].weight
    torch.utils.swap_tensors(weight, nn.Parameter(torch.randn(5, 3)))
    expect_the_same(state, memo, ["swapped"])
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        state["net"].double()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    expect_the_same(state, memo, ["double"])


def test_a_parameter_that_has_the_id_of_another_now() -> None:
    state, memo = start(9), Memo()
    state["optim"] = torch.optim.SGD([state["net"][2][0].weight], lr=0.1)
    expect_the_same(state, memo, [])
    gone = id(state["net"][0].bias)
    state["net"][0].bias = None
    kept = []
    for _ in range(1000):
        kept.append(nn.Parameter(torch.randn(5)))
        if id(kept[-1]) == gone:
            break
    state["optim"].add_param_group({"params": [kept[-1]]})
    expect_the_same(state, memo, ["no bias", "another"])


class Scaled(torch.Tensor):
    """A tensor with a plain value beside its elements."""

    scale = 1.0


def test_a_registered_kind_of_tensor_in_a_module() -> None:
    df.register_type(
        Scaled,
        "test.scaled",
        to_tree=lambda value: {"raw": value.as_subclass(torch.Tensor), "scale": value.scale},
        from_tree=lambda tree: tree["raw"],
    )
    buffer = torch.randn(3).as_subclass(Scaled)
    buffer.detach = lambda: buffer  # type: ignore[method-assign]  # gives the object itself
    state, memo = start(10), Memo()
    state["net"].register_buffer("scaled", buffer)
    expect_the_same(state, memo, [])
    buffer.scale = 2.0
    expect_the_same(state, memo, ["scale"])


class Averager:
    """Puts other parameters into a module whenever it is asked for its state."""

    def __init__(self, net: nn.Module) -> None:
        self.net = net
        self.spare = nn.Parameter(torch.randn(5, 3))

    def state_dict(self) -> dict[str, Any]:
        self.net[0].weight, self.spare = self.spare, self.net[0].weight  # type: ignore[index]
        return {"x": 1}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        del state


def test_a_tensor_that_moves_before_its_module_is_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another thread moves it: the places that were seen are out of date."""
    remember, remembered = ModuleRecall.of, []

    def move_and_remember(module: nn.Module, *seen: Any) -> ModuleRecall | None:
        if moves:
            module.weight.data = module.weight.data.clone()
        remembered.append(remember(module, *seen))
        return remembered[-1]

    monkeypatch.setattr(ModuleRecall, "of", move_and_remember)
    for moves in (False, True):
        walk({"m": nn.Linear(2, 2)}, Memo())
        assert (remembered[-1] is None) == moves


def test_a_module_that_changes_within_the_walk() -> None:
    begun, memo = start(11), Memo()
    net = begun["net"]
    state = {"optim": begun["optim"], "average": Averager(net), "net": net}
    for _ in range(3):
        capture = walk(state, memo)
        entry = next(each for each in capture.entries if each.key == "net.0.weight")
        assert entry.address == net[0].weight.data_ptr()


def test_a_key_of_another_type() -> None:
    state, memo = start(12), Memo()
    first_state(state)[1] = torch.ones(2)
    expect_the_same(state, memo, [])
    first_state(state)[True] = first_state(state).pop(1)
    expect_the_same(state, memo, ["True"])


@pytest.mark.parametrize("before_us", [False, True])
def test_a_method_of_torch_that_is_replaced(
    monkeypatch: pytest.MonkeyPatch, before_us: bool
) -> None:
    state, memo, calls = start(13), Memo(), itertools.count()
    weight = state["net"][0].weight

    def save(self: nn.Module, found: Any, prefix: str, _: bool) -> None:
        found[f"{prefix}patched{next(calls) // 20}"] = weight

    if before_us:
        monkeypatch.setitem(torch_recall._TORCHS_OWN, "_save_to_state_dict", save)
    else:
        walk(state, memo)
    monkeypatch.setattr(nn.Module, "_save_to_state_dict", save)
    texts = [walk(state, memo).text for _ in range(12)]
    assert "patched0" in texts[0]
    assert "patched0" not in texts[-1]


def test_an_empty_tensor_that_is_stored_in_parts() -> None:
    """Its address and that of its part are 0, so only the node tells that it is no plain tensor."""

    def quantised(scale: float) -> torch.Tensor:
        return torch.quantize_per_tensor(torch.empty(0), scale, 0, torch.quint8)

    net = nn.Linear(1, 1)
    net.register_buffer("q", quantised(0.1))
    state, memo = {"net": net}, Memo()
    expect_the_same(state, memo, [])
    expect_the_same(state, memo, ["again"])
    net.q.data = quantised(0.5)
    expect_the_same(state, memo, ["scale"])


class Renaming(nn.Linear):
    """Names its parameters by a method of its own."""

    prefix = "first_"

    def named_parameters(self, *_: Any, **__: Any) -> Any:
        return [(self.prefix + name, value) for name, value in self._parameters.items()]


def test_a_module_that_renames_its_parameters() -> None:
    net = Renaming(3, 5)
    state: State = {"net": net, "optim": torch.optim.Adam(net.parameters())}
    train(state)
    memo = Memo()
    for _ in range(3):
        expect_the_same(state, memo, [])
    net.prefix = "second_"
    expect_the_same(state, memo, ["second_"])
    assert "second_weight" in walk(state, memo).text


def broken_off(state: State, memo: Memo, after: int) -> bool:
    """A walk that is interrupted at that many lines of the adapters; whether it was."""
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        if "frameworks" not in frame.f_code.co_filename:
            return None
        lines += event == "line"
        if lines == after:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        walk(state, memo)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def lie(state: State, how: str) -> None:
    """Sets the place of the second module's weight."""
    other = state["one"].weight.data
    places = {
        "apart": torch.randn(4, 4), "turned apart": torch.randn(4, 4).t(),
        "shared": other[:], "turned and shared": other.t(),
    }  # fmt: skip
    state["two"].weight.data = places[how]


@pytest.mark.parametrize("then", ["turned and shared", "shared", "turned apart"])
@pytest.mark.parametrize("after", ["apart", "turned apart"])
def test_an_interrupt_leaves_a_memo_that_is_right(then: str, after: str) -> None:
    interrupts = 0
    for line in range(1, LINES_MAX, 4):
        state: State = {name: nn.Linear(4, 4, bias=False) for name in ("one", "two")}
        memo = Memo()
        for _ in range(2):
            walk(state, memo)
        lie(state, then)
        if not broken_off(state, memo, line):
            break
        interrupts += 1
        lie(state, after)
        expect_the_same(state, memo, [then, after, f"line {line}"])
    assert interrupts > 20


def test_what_has_not_changed_is_recalled() -> None:
    state, memo = start(2), Memo()
    walk(state, memo)
    first = memo.recalls
    train(state)
    walk(state, memo)
    kinds = {at: type(recall) for at, recall in first._objects.items()}
    assert kinds == {(0, "net"): ModuleRecall, (9, "optim"): OptimizerRecall}
    assert all(memo.recalls._objects[at] is first._objects[at] for at in kinds)
    walk(state, memo)
    assert memo.tensors._moved == []
    entries = walk(state, memo).entries
    assert all(map(operator.is_, entries, walk(state, memo).entries))


def test_a_recall_keeps_nothing_alive() -> None:
    state, memo = start(3), Memo()
    for _ in range(2):
        walk(state, memo)
    watched = [weakref.ref(state["net"]), weakref.ref(state["net"][0].weight)]
    watched += [weakref.ref(state["optim"]), weakref.ref(first_state(state)["exp_avg"])]
    state.clear()
    gc.collect()
    assert [reference() for reference in watched] == [None] * len(watched)


@pytest.mark.parametrize("before", [nothing, new_data, new_moment])
def test_a_walk_that_fails_leaves_a_memo_that_is_right(before: Callable[[State], None]) -> None:
    state, memo = start(4), Memo()
    for _ in range(2):
        walk(state, memo)
    before(state)
    state["wrong"] = object()
    with pytest.raises(Exception, match="can't be stored"):
        walk(state, memo)
    del state["wrong"]
    expect_the_same(state, memo, [before.__name__, "wrong"])
    new_data(state)
    expect_the_same(state, memo, [before.__name__, "wrong", "new_data"])


def test_modules_in_another_order() -> None:
    net = nn.Sequential(*(nn.Linear(2, 2) for _ in range(3)))
    modules = OrderedDict(net._modules)
    net._modules = modules  # as containers do when one of theirs is deleted
    state, memo = {"net": net}, Memo()
    for _ in range(3):
        expect_the_same(state, memo, [])
    modules.move_to_end("0")
    for _ in range(2):
        expect_the_same(state, memo, ["moved"])


def test_memory_of_one_that_moved_before() -> None:
    state = {"model": nn.Linear(3, 3), "average": nn.Linear(3, 3)}
    memo = Memo()
    expect_the_same(state, memo, [])
    state["average"].weight.data = torch.randn(3, 3)
    for _ in range(2):
        expect_the_same(state, memo, ["moved"])
    state["model"].weight.data = state["average"].weight.data
    expect_the_same(state, memo, ["moved", "tied"])


class Hiding(nn.Linear):
    """Has a submodule that it does not tell of."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        self.inner = nn.Linear(2, 2)

    def named_modules(self, *args: Any, **kwargs: Any) -> Any:
        yield "", self


def test_a_module_that_hides_another() -> None:
    state, memo = {"net": Hiding()}, Memo()
    for _ in range(2):
        expect_the_same(state, memo, [])
    state["net"].inner.weight = nn.Parameter(torch.randn(2, 2))
    expect_the_same(state, memo, ["inner"])


def test_a_walk_lets_the_state_go_without_the_collector() -> None:
    state, memo = start(11), Memo()
    gc.collect()
    gc.disable()
    try:
        for _ in range(2):
            walk(state, memo)
        left = weakref.ref(state["net"][0].weight)
        state.clear()
        assert left() is None
    finally:
        gc.enable()
