"""Many tensors that entries are read straight into: which those are, and what they may share."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from testkit import data_file, data_start, flip
from torch import nn

import deepfreeze as df
from deepfreeze import _core
from deepfreeze.frameworks.torch import tensors as tensors_module
from deepfreeze.restoring.plan import Plan
from deepfreeze.state.entry import Homes

SHAPE = (4, 6)
FLOATS, DOUBLES = torch.float32, torch.float64


@pytest.fixture
def stored(tmp_path: Path) -> _core.OpenCheckpoint:
    state: dict[str, Any] = {f"of_{dtype}": torch.ones(SHAPE, dtype=dtype) for dtype in DTYPES}
    state |= {
        "f": torch.arange(24.0).view(SHAPE),
        "other": torch.ones(SHAPE),
        "none": torch.ones(0),
    }
    state |= {"scalar": torch.tensor(2.5), "row": torch.ones(1, 6)}
    state |= {"complex": torch.ones(SHAPE, dtype=torch.complex64)}
    with df.Checkpointer(tmp_path / "stored") as ckpt:
        ckpt.save(1, state).wait()
    return _core.open_checkpoint(_core.list_checkpoints(tmp_path / "stored")[0])


DTYPES = (
    torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32,
    torch.uint64, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
)  # fmt: skip


def homes(stored: _core.OpenCheckpoint, **live: Any) -> _core.Homes:
    return _core.Homes(stored, list(live), list(live.values()))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tensor_of_the_same_dtype_is_a_home(
    stored: _core.OpenCheckpoint, dtype: torch.dtype
) -> None:
    live = torch.zeros(SHAPE, dtype=dtype)
    key = f"of_{dtype}"
    found = _core.Homes(stored, [key], [live])
    assert found.others == []
    assert (found.bytes, found.addresses) == (live.nbytes, [live.data_ptr()])
    stored.read([], True, None, [found])
    assert torch.equal(live, torch.ones(SHAPE, dtype=dtype))
    others = [each for each in DTYPES if each != dtype]
    unlike = [torch.zeros(SHAPE, dtype=each) for each in others]
    assert _core.Homes(stored, [key] * len(unlike), unlike).others == [*range(len(unlike))]


def shrunk() -> torch.Tensor:
    tensor = torch.zeros(SHAPE)
    tensor.untyped_storage().resize_(tensor.nbytes - 1)
    return tensor


class Renamed(torch.Tensor):
    """A class that may do anything with its memory."""


NO_HOMES: dict[str, Callable[[], Any]] = {
    "another dtype of that size": lambda: torch.zeros(SHAPE, dtype=torch.int32),
    "another shape": lambda: torch.zeros(6, 4),
    "more dimensions": lambda: torch.zeros(*SHAPE, 1),
    "fewer dimensions": lambda: torch.zeros(4),
    "columns": lambda: torch.zeros(6, 4).T,
    "steps": lambda: torch.zeros(4, 12)[:, ::2],
    "one row": lambda: torch.zeros(6).expand(SHAPE),
    "negation": lambda: torch._neg_view(torch.zeros(SHAPE)),
    "a storage that is too small": shrunk,
    "no memory": lambda: torch.zeros(SHAPE, device="meta"),
    "sparse": lambda: torch.zeros(SHAPE).to_sparse(),
    "of another class": lambda: torch.zeros(SHAPE).as_subclass(Renamed),
    "no tensor": object,
}


@pytest.mark.parametrize("what", NO_HOMES)
def test_other_tensors_need_a_closer_look(stored: _core.OpenCheckpoint, what: str) -> None:
    found = homes(stored, other=torch.zeros(SHAPE), f=NO_HOMES[what]())
    assert found.others == [1]
    assert found.bytes == 96
    with torch.inference_mode():
        assert homes(stored, f=NO_HOMES[what]()).others == [0]


def test_the_parts_of_complex_numbers_are_no_home(stored: _core.OpenCheckpoint) -> None:
    """They are stored as such, with another name."""
    assert homes(stored, complex=torch.zeros(*SHAPE, 2)).others == [0]


def test_a_key_that_is_not_stored_needs_a_closer_look(stored: _core.OpenCheckpoint) -> None:
    assert homes(stored, other=torch.zeros(SHAPE), missing=torch.zeros(SHAPE)).others == [1]
    assert _core.Homes(stored, ["\ud800"], [torch.zeros(SHAPE)]).others == [0]


def test_small_forms_and_parameters_are_homes(stored: _core.OpenCheckpoint) -> None:
    live = {
        "scalar": torch.tensor(0.0),
        "row": torch.zeros(6, 1).T,  # the step of a dimension of one element counts for nothing
        "none": torch.zeros(0),
        "f": nn.Parameter(torch.zeros(100)[10:34].view(SHAPE)),
    }
    found = homes(stored, **live)
    assert found.others == []
    assert found.bytes == 4 + 24 + 0 + 96
    stored.read([], True, None, [found])
    assert torch.equal(live["f"].detach(), torch.arange(24.0).view(SHAPE))
    assert live["scalar"] == 2.5


def test_a_copy_of_memory_that_is_made_on_a_write_stays_one(stored: _core.OpenCheckpoint) -> None:
    first = torch.zeros(SHAPE)
    live = torch._lazy_clone(first)
    stored.read([], True, None, [homes(stored, f=live)])
    assert live.sum() == 276
    assert first.sum() == 0


def test_homes_are_apart_unless_memory_is_used_twice(
    stored: _core.OpenCheckpoint,
) -> None:
    memory = torch.zeros(60)
    one = homes(stored, f=memory[:24].view(SHAPE))
    behind = homes(stored, other=memory[24:48].view(SHAPE))
    across = homes(stored, other=memory[23:47].view(SHAPE))
    apart = _core.Homes.are_apart
    assert apart([one, behind], [])
    assert not apart([one, across], [])
    address = memory.data_ptr()
    assert apart([one], [(address + 96, 96), (address + 10, 0)])
    assert not apart([one], [(address + 95, 1)])
    assert not apart([one], [(address - 10, 11)])
    tied = _core.Homes(stored, ["f", "f"], [memory[:24].view(SHAPE)] * 2)
    assert tied.bytes == 96
    assert apart([tied], [])
    twice = _core.Homes(stored, ["f", "other"], [memory[:24].view(SHAPE)] * 2)
    assert not apart([twice], [])


# Whole restores


class Wide(nn.Module):
    """As many tensors as it takes to have homes, and a few more for each test."""

    def __init__(self, fill: float, **more: torch.Tensor) -> None:
        super().__init__()
        for index in range(tensors_module._HOMES_MIN):
            self.register_buffer(f"b{index}", torch.full((3,), fill + index))
        for name, value in more.items():
            self.register_buffer(name, value)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Homes]]:
    """All homes that a plan was given; those that it split into places are marked."""
    made: list[Homes] = []
    fill = Plan.fill_homes

    def noted(self: Plan, homes: Homes) -> None:
        made.append(homes)
        fill(self, homes)

    monkeypatch.setattr(Plan, "fill_homes", noted)
    yield made
    assert made, "the test is about nothing"


def restored(run: Path, saved: Any, live: Any, **options: Any) -> df.RestoreReport:
    with df.Checkpointer(run) as ckpt:
        ckpt.save(1, saved).wait()
    with df.Checkpointer(run) as ckpt:
        ckpt.restore(live, **options)
        assert ckpt.last_restore is not None
        return ckpt.last_restore


def equal(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


def test_homes_are_filled_counted_and_told_to_autograd(run: Path, used: list[Homes]) -> None:
    saved, live = Wide(1.0), Wide(0.0)
    versions = [each._version for each in live.buffers()]
    report = restored(run, {"m": saved}, {"m": live})
    assert equal(saved, live)
    assert report.bytes == sum(each.nbytes for each in live.buffers())
    assert all(b._version > a for a, b in zip(versions, live.buffers(), strict=True))
    (homes,) = used
    assert homes.paths == [f"m.b{index}" for index in range(tensors_module._HOMES_MIN)]


def views(base: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"one": base[:8], "two": base[4:12]}


def test_tensors_that_share_memory_as_stored_are_filled(run: Path, used: list[Homes]) -> None:
    saved = Wide(1.0, **views(torch.arange(12.0)))
    live = Wide(0.0, **views(torch.zeros(12)))
    restored(run, {"m": saved}, {"m": live})
    assert equal(saved, live)


def test_tensors_that_share_memory_but_were_stored_apart_are_refused(
    run: Path, used: list[Homes]
) -> None:
    saved = Wide(1.0, one=torch.ones(8), two=torch.full((8,), 2.0))
    live = Wide(0.0, **views(torch.zeros(12)))
    with pytest.raises(df.MismatchError, match=r"m\.two: it shares its memory with m\.one"):
        restored(run, {"m": saved}, {"m": live})
    assert live.b0.sum() == 0


def test_memory_that_another_object_of_the_state_shares_is_refused(
    run: Path, used: list[Homes]
) -> None:
    live = Wide(0.0)
    state = {"m": live, "other": live.b3}
    saved = {"m": Wide(1.0), "other": torch.full((3,), 9.0)}
    with pytest.raises(df.MismatchError, match=r"other: it shares its memory with m\.b3"):
        restored(run, saved, state)


@pytest.mark.parametrize("is_first", [False, True])
def test_an_entry_that_two_tensors_shared_fills_both(
    run: Path, used: list[Homes], is_first: bool
) -> None:
    """Live they lie apart."""
    saved = Wide(1.0)
    live, twin = Wide(0.0), torch.zeros(3)
    state = {"t": twin, "m": live} if is_first else {"m": live, "t": twin}
    restored(run, {key: saved if key == "m" else saved.b2 for key in state}, state)
    assert equal(saved, live)
    assert torch.equal(twin, saved.b2)


def test_homes_are_freed_without_the_collector(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[Homes]] = []
    fill = Plan.fill_homes

    def noted(self: Plan, homes: Homes) -> None:
        made.append(weakref.ref(homes))
        fill(self, homes)

    monkeypatch.setattr(Plan, "fill_homes", noted)
    gc.disable()
    try:
        restored(run, {"m": Wide(1.0)}, {"m": Wide(0.0)})
        assert [each() for each in made] == [None]
    finally:
        gc.enable()


def test_tied_tensors_are_read_once(run: Path, used: list[Homes]) -> None:
    one, other = torch.full((50,), 7.0), torch.zeros(50)
    live = Wide(0.0, one=other, two=other)
    report = restored(run, {"m": Wide(1.0, one=one, two=one)}, {"m": live})
    assert live.two.sum() == 350
    assert live.one.data_ptr() == live.two.data_ptr()
    assert report.bytes == tensors_module._HOMES_MIN * 12 + 200


def test_a_misfit_leaves_the_others_to_a_restore_that_is_not_strict(
    run: Path, used: list[Homes]
) -> None:
    saved, live = Wide(1.0, more=torch.ones(4)), Wide(0.0, more=torch.zeros(5))
    report = restored(run, {"m": saved}, {"m": live}, strict=False)
    assert [*report.mismatched] == ["m.more"]
    assert live.b1.sum() == 6
    assert live.more.sum() == 0


class Slots(torch.optim.Optimizer):
    """State of more tensors a parameter than it takes to have homes."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for each in group["params"]:
                state = self.state[each]
                for index in range(tensors_module._HOMES_MIN + 1):
                    slot = state.setdefault(f"s{index}", torch.zeros(3))
                    slot += index


def test_state_of_a_parameter_that_does_not_fit_stays(run: Path, used: list[Homes]) -> None:
    """Its shape fits, the parameter's dtype does not: state and parameter belong together."""

    def trained(dtype: torch.dtype, steps: int) -> tuple[dict[str, Any], Slots]:
        module = nn.Module()
        module.w = nn.Parameter(torch.zeros(3, dtype=dtype))
        optimizer = Slots(module.parameters())
        for _ in range(steps):
            optimizer.step()
        return {"a": Wide(float(steps)), "m": module, "o": optimizer}, optimizer

    saved, _ = trained(DOUBLES, 3)
    state, live = trained(FLOATS, 1)
    report = restored(run, saved, state, strict=False)
    assert {"m.w", "o.state.w"} <= report.mismatched.keys()
    assert equal(state["a"], saved["a"])
    (slots,) = live.state.values()
    assert [float(each[0]) for each in slots.values()] == [*range(len(slots))]


def test_a_stored_view_does_not_become_its_whole(run: Path, used: list[Homes]) -> None:
    """Both have one shape, and one entry: the view walks it by columns."""
    square = torch.arange(36.0).view(6, 6)
    live = Wide(0.0, one=torch.zeros(6, 6), two=torch.zeros(6, 6))
    restored(run, {"m": Wide(1.0, one=square, two=square.T)}, {"m": live})
    assert torch.equal(live.one, square)
    assert torch.equal(live.two, square.T)


def test_of_two_tensors_that_share_memory_the_later_one_does_not_fit(
    run: Path, used: list[Homes]
) -> None:
    first, second = Wide(0.0), Wide(50.0)
    live = {"a": first, "t": second.b3, "b": second}
    saved = {"a": Wide(1.0), "t": torch.ones(3), "b": Wide(2.0)}
    report = restored(run, saved, live, strict=False)
    assert report.mismatched.keys() == {"b.b3"}
    assert torch.equal(second.b3, torch.ones(3))


def failing_from_tree(_: Any) -> Any:
    raise ValueError("no such value")


class Own:
    """A value of a registered type."""


def test_values_are_made_before_homes_are_filled(run: Path, used: list[Homes]) -> None:
    df.register_type(Own, "test.homes.own", lambda _: torch.ones(1), failing_from_tree)
    live = Wide(0.0)
    with pytest.raises(df.CheckpointError, match="no such value") as caught:
        restored(run, {"m": Wide(1.0), "own": Own()}, {"m": live, "own": Own()})
    assert not caught.value.state_modified
    assert equal(live, Wide(0.0))


def damaged(run: Path, **more: torch.Tensor) -> None:
    """Two steps, of which the second does not verify, and has more tensors."""
    with df.Checkpointer(run) as ckpt:
        for step in (1, 2):
            module = Wide(float(step), **more if step == 2 else {})
            ckpt.save(step, {"m": module, "x": torch.ones(1)}).wait()
    path = data_file(run, 2)
    flip(path, data_start(path) + 40)


def test_a_damaged_checkpoint_is_replaced_by_an_older_one(run: Path, used: list[Homes]) -> None:
    damaged(run)
    live = Wide(0.0)
    with df.Checkpointer(run) as ckpt:
        assert ckpt.restore({"m": live, "x": torch.zeros(1)}) == 1
    assert equal(live, Wide(1.0))


def test_an_older_checkpoint_must_cover_what_a_damaged_one_has_written(
    run: Path, used: list[Homes]
) -> None:
    damaged(run, more=torch.ones(1))
    live = {"m": Wide(0.0, more=torch.zeros(1)), "x": torch.zeros(1)}
    with (
        df.Checkpointer(run) as ckpt,
        pytest.raises(df.CorruptError, match="overwritten") as caught,
    ):
        ckpt.restore(live, strict=False)
    assert caught.value.state_modified


def test_what_a_damaged_checkpoint_has_written_is_restored_before_a_save(
    run: Path, used: list[Homes]
) -> None:
    damaged(run)
    live = {"m": Wide(0.0), "x": torch.zeros(1)}
    with df.Checkpointer(run) as ckpt:
        with pytest.raises(df.CorruptError):
            ckpt.restore(live, step=2, keys=["m"])
        ckpt.restore(live, step=1, keys=["x"])
        with pytest.raises(df.CheckpointError, match="half restored"):
            ckpt.save(3, live)
        ckpt.restore(live, step=1)
        ckpt.save(3, live).wait()
