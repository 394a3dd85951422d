"""deepfreeze.dcp.AsyncStager, and dcp.async_save() of one process."""

import gc
import threading
from collections import OrderedDict
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from dcp_kit import assert_equal, load, quiet, url
from testkit import same
from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.staging import AsyncStager as DcpStager
from torch.distributed.checkpoint.state_dict_saver import AsyncSaveResponse

import deepfreeze as df
from deepfreeze.dcp import AsyncStager, StorageWriter


def state_of(value: int) -> dict[str, Any]:
    return {
        "w": torch.full((50, 20), float(value)),
        "half": torch.full((3, 4), value, dtype=torch.bfloat16).t(),
        "float8": torch.full((9,), value).to(torch.float8_e4m3fn),
        "lazy": torch.full((4,), complex(value, 1)).conj(),
        "groups": [{"lr": value, "m": torch.full((2,), value)}],
        "epoch": value,
    }


def addresses(staged: Any) -> list[int]:
    return [staged[name].data_ptr() for name in ("w", "half", "float8", "lazy")]


def staged_by(stager: AsyncStager, state: dict[str, Any]) -> dict[str, Any]:
    staged = stager.stage(state)
    assert isinstance(staged, dict)
    return staged


def test_a_copy_is_of_everything() -> None:
    state = state_of(1)
    state["module"] = OrderedDict(a=torch.ones(2), b=[{1, 2}])
    state["tuple"] = (torch.ones(3), [1])
    stager = AsyncStager()
    assert isinstance(stager, DcpStager)
    staged = staged_by(stager, state)
    for name in ("w", "half", "float8", "lazy"):
        assert torch.equal(
            staged[name].view(torch.uint8) if name == "float8" else staged[name],
            state[name].view(torch.uint8) if name == "float8" else state[name],
        )
        assert staged[name].untyped_storage().data_ptr() != state[name].untyped_storage().data_ptr()
    assert type(staged["module"]) is OrderedDict
    assert_equal(staged["tuple"], state["tuple"])
    state["w"].zero_()
    state["groups"][0]["m"].zero_()
    state["groups"][0]["lr"] = 5
    state["module"]["b"][0].add(3)
    state["tuple"][1].append(2)
    assert staged["w"].eq(1).all()
    assert_equal(staged["groups"], [{"lr": 1, "m": torch.full((2,), 1)}])
    assert same(staged["module"]["b"], [{1, 2}])
    assert staged["tuple"][1] == [1]


def test_memory_is_used_again_once_a_copy_is_dropped() -> None:
    stager = AsyncStager(sets=2)
    one = staged_by(stager, state_of(1))
    first = addresses(one)
    two = staged_by(stager, state_of(2))
    assert set(addresses(two)).isdisjoint(first)
    assert one["w"].eq(1).all()
    del one
    three = staged_by(stager, state_of(3))
    assert addresses(three) == first
    assert three["w"].eq(3).all()
    del two
    other = state_of(4) | {"w": torch.ones(7, 7)}
    assert staged_by(stager, other)["w"].shape == (7, 7)


def test_copies_are_no_more_than_was_said() -> None:
    stager = AsyncStager(sets=1, wait_seconds=0.05)
    held = staged_by(stager, state_of(1))
    with pytest.raises(df.CheckpointTimeoutError, match="1 copies are still held after"):
        stager.stage(state_of(2))
    assert held["epoch"] == 1
    patient = AsyncStager(sets=1)
    kept = [patient.stage(state_of(1))]
    threading.Timer(0.05, kept.clear).start()
    assert staged_by(patient, state_of(2))["epoch"] == 2
    with pytest.raises(ValueError, match="sets: 0 is less than 1"):
        AsyncStager(sets=0)


def test_a_value_that_can_not_be_copied_is_named() -> None:
    stager = AsyncStager(sets=1)
    with pytest.raises(df.EncodeError, match=r"stage deep\.0\.lock: a lock can't be copied"):
        stager.stage({"deep": [{"lock": threading.Lock()}]})
    staged_by(stager, state_of(1))
    stager.close()
    with pytest.raises(df.CheckpointError, match="the stager is closed"):
        stager.stage(state_of(1))


def test_in_the_background_a_copy_is_a_future() -> None:
    stager = AsyncStager(background=True)
    state = state_of(1)
    staged = stager.stage(state)
    assert isinstance(staged, Future)
    stager.synchronize_staging()
    assert staged.done()
    state["w"].zero_()
    assert staged.result()["w"].eq(1).all()
    stager.close()


@pytest.mark.parametrize("background", [False, True])
def test_async_saves_of_a_state_that_changes(run: Path, background: bool) -> None:
    stager = AsyncStager(background=background)
    with StorageWriter(run, keep_last=None) as writer, quiet():
        for value in (1, 2, 3, 4):
            state = state_of(value)
            saved: Any = dcp.async_save(state, storage_writer=writer, async_stager=stager)
            if background:
                assert isinstance(saved, AsyncSaveResponse)
                saved.staging_completion.result(60)
            for tensor in (state["w"], state["half"], state["groups"][0]["m"]):
                tensor.zero_()
            state["groups"][0]["lr"] = -1
            (saved.upload_completion if background else saved).result(60)
    del saved
    gc.collect()
    assert len(stager._sets._free) == stager._sets._made <= 2
    stager.close()
    for value in (1, 2, 3, 4):
        found = state_of(-1)
        assert load(found, run, step=value) == value
        wanted = state_of(value)
        assert torch.equal(found.pop("lazy"), wanted.pop("lazy"))
        assert_equal(found, wanted)


def test_a_failed_async_save_is_in_its_future_and_the_next_one_works(run: Path) -> None:
    class Failing(DefaultSavePlanner):
        def resolve_data(self, write_item: Any) -> Any:
            raise ZeroDivisionError("on purpose")

    stager = AsyncStager(sets=1)
    with StorageWriter(run) as writer, quiet():
        saved: Any = dcp.async_save(
            state_of(1), storage_writer=writer, async_stager=stager, planner=Failing()
        )
        with pytest.raises(dcp.CheckpointException, match="on purpose"):
            saved.result(60)
        del saved
        saved = dcp.async_save(state_of(2), storage_writer=writer, async_stager=stager)
        assert saved.result(60).storage_meta.save_id == "1"


def test_with_torchs_own_stager_and_by_url(run: Path) -> None:
    with quiet():
        saved: Any = dcp.async_save(state_of(1), storage_writer=StorageWriter(run))
        saved.result(60)
        saved = dcp.async_save(state_of(2), checkpoint_id=url(run.with_name("id")))
        saved.result(60)
        found = state_of(-1)
        dcp.load(found, storage_reader=FsspecReader(url(run.with_name("id"))))
    assert found["epoch"] == 2
    assert load(found, run) == 1
    assert found["epoch"] == 1
