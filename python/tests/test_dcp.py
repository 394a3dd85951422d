"""deepfreeze.dcp.StorageWriter and StorageReader under one process's dcp.save() and dcp.load()."""

import io
import logging
import pickle
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import ANY

import pytest
import torch
import torch.distributed.checkpoint as dcp
from dcp_kit import assert_equal, blank, cause_of, load, quiet, save
from import_kit import DTYPES, random_tensor
from testkit import Net, assert_same, data_file, data_start, flip, state_bits
from torch.distributed.checkpoint import CheckpointException
from torch.distributed.checkpoint.default_planner import (
    DefaultLoadPlanner,
    DefaultSavePlanner,
)
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    MetadataIndex,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import SavePlan, WriteItemType
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys

import deepfreeze as df
from deepfreeze import _core
from deepfreeze.dcp import StorageReader, StorageWriter
from deepfreeze.dcp.meeting import Place, Verdict, Vote, meet
from deepfreeze.dcp.reading import _keep_apart, _Part
from deepfreeze.dcp.session import session_of


class Stateful:
    """Could be restored in place, if it stood alone."""

    def state_dict(self) -> dict[str, int]:
        return {"n": 1}

    def load_state_dict(self, _: dict[str, int]) -> None:
        raise AssertionError


class Point(NamedTuple):
    """A type that the state tree has no form for."""

    x: int
    y: int


def w(value: float, *shape: int) -> torch.Tensor:
    return torch.full(shape or (3, 5), float(value))


def steps(run: Path) -> list[int]:
    return [info.step for info in _core.list_checkpoints(str(run))]


def test_every_dtype_comes_back_bit_for_bit(run: Path) -> None:
    state = {str(dtype): random_tensor(dtype, 5, 3) for dtype in DTYPES}
    save(state, run)
    found = {name: random_tensor(tensor.dtype, 5, 3) for name, tensor in state.items()}
    for tensor in found.values():
        tensor.reshape(-1).view(torch.uint8).zero_()
    load(found, run)
    for name, tensor in state.items():
        assert_same(found[name], tensor)


def test_memory_of_any_layout_comes_back(run: Path) -> None:
    base = torch.arange(60.0).view(6, 10)
    state = {
        "plain": base,
        "transposed": base.t(),
        "strided": base[::2, 1::3],
        "view": base[2:4],
        "expanded": base[:1].expand(4, 10),
        "channels": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        "conjugate": torch.randn(4, dtype=torch.complex64).conj(),
        "scalar": torch.tensor(2.5, dtype=torch.float64),
        "empty": torch.empty(0, 3),
        "parameter": torch.nn.Parameter(base.clone()),
    }
    save(state, run)
    found = {name: torch.empty(tensor.shape, dtype=tensor.dtype) for name, tensor in state.items()}
    found["plain"] = torch.empty(10, 6).t()
    load(found, run)
    for name, tensor in state.items():
        assert torch.equal(found[name], tensor), name


def test_what_is_no_tensor_comes_back_as_it_was(run: Path) -> None:
    values: dict[str, Any] = {
        "int": 1 << 70, "float": float("nan"), "text": "ä", "none": None, "flag": True,
        "tuple": (1, ("x", b"y"), None), "bytes": b"0" * 5000, "set": {1, 2},
        "dicts": (Counter("aab"), OrderedDict(b=1, a=2), {1: "x"}), "dtype": torch.bfloat16,
        "size": torch.Size([3, 4]), "plain list": [1, [2.5, "z"]], "complex": 1 - 2j,
    }  # fmt: skip
    save({"nested": values, "top": 7}, run)
    found = {"nested": dict.fromkeys(values), "top": 0}
    load(found, run)
    assert_equal(found, {"nested": values, "top": 7})


def test_tensors_within_a_value_that_dcp_does_not_take_apart(run: Path) -> None:
    pair = (torch.arange(3.0), {"deep": torch.ones(2, dtype=torch.bfloat16)})
    save({"pair": pair}, run)
    found: dict[str, Any] = {"pair": None}
    load(found, run)
    assert_equal(found["pair"], pair)


def test_a_training_state_comes_back_through_torchs_helpers(run: Path) -> None:
    def trained(seed: int) -> tuple[Net, torch.optim.Optimizer]:
        torch.manual_seed(seed)
        net = Net()
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01 * seed)
        net(torch.randn(4, 3, 8, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        return net, optimizer

    net, optimizer = trained(1)
    model_state, optim_state = get_state_dict(net, optimizer)
    save({"model": model_state, "optim": optim_state}, run)
    other, other_optimizer = trained(2)
    model_state, optim_state = get_state_dict(other, other_optimizer)
    found = {"model": model_state, "optim": optim_state}
    load(found, run)
    set_state_dict(
        other,
        other_optimizer,
        model_state_dict=found["model"],
        optim_state_dict=found["optim"],
    )
    assert state_bits(other) == state_bits(net)
    assert_equal(other_optimizer.state_dict(), optimizer.state_dict())


def test_names_that_our_files_keep_for_themselves(run: Path) -> None:
    names = ["@rank00000.x", "%40rank", "a..b", "__metadata__", "a~2", "$", "objects.x", "ü/ ."]
    state: dict[str, Any] = {name: w(index) for index, name in enumerate(names)}
    state |= {"blob": b"1" * 9000, "objects.blob": w(9)}
    save(state, run)
    found = blank(state)
    load(found, run)
    assert_equal(found, state)


def test_each_save_is_a_step_and_the_newest_two_stay(run: Path) -> None:
    with StorageWriter(run) as writer, quiet():
        for value in range(4):
            saved = dcp.save({"w": w(value)}, storage_writer=writer)
    assert saved.storage_meta.save_id == "4"
    assert steps(run) == [4, 3]
    found = {"w": w(-1)}
    assert load(found, run) == 4
    assert torch.equal(found["w"], w(3))
    assert load(found, run, step=3) == 3
    assert torch.equal(found["w"], w(2))


def test_a_run_that_is_opened_anew_goes_on(run: Path) -> None:
    for value in range(3):
        save({"w": w(value)}, run, keep_last=None)
    infos = _core.list_checkpoints(str(run))
    assert [(info.step, info.abandoned) for info in infos] == [(3, False), (2, False), (1, False)]


def test_a_step_of_ones_own_may_go_back(run: Path) -> None:
    save({"w": w(1)}, run, step=100, keep_last=None)
    save({"w": w(2)}, run, keep_last=None)
    save({"w": w(3)}, run, step=50, keep_last=None)
    save({"w": w(4)}, run, keep_last=None)
    assert steps(run) == [51, 50, 101, 100]
    found = {"w": w(0)}
    assert load(found, run) == 51


def test_an_id_used_again_by_another_state_is_no_mixture(run: Path) -> None:
    with StorageWriter() as writer, quiet():
        dcp.save({"a": w(1), "b": w(1)}, checkpoint_id=run, storage_writer=writer)
        dcp.save({"a": w(2)}, checkpoint_id=str(run), storage_writer=writer)
    with pytest.raises(CheckpointException, match=r"Missing key in checkpoint state_dict: b"):
        load({"a": w(0), "b": w(0)}, run)
    found = {"a": w(0), "b": w(0)}
    with quiet():
        reader = StorageReader()
        planner = DefaultLoadPlanner(allow_partial_load=True)
        dcp.load(found, checkpoint_id=run, storage_reader=reader, planner=planner)
    assert_equal(found, {"a": w(2), "b": w(0)})


def test_a_flipped_bit_makes_the_step_before_it_load(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for value in (1, 2, 3):
        save({"w": w(value), "other": w(value, 9), "n": value}, run, keep_last=None)
    damaged = data_file(run, 3)
    flip(damaged, data_start(damaged) + 17)
    found = {"w": w(0), "other": w(0, 9), "n": 0}
    with caplog.at_level(logging.WARNING):
        assert load(found, run) == 2
    assert_equal(found, {"w": w(2), "other": w(2, 9), "n": 2})
    assert "block" in caplog.text
    with pytest.raises(CheckpointException) as raised:
        load(found, run, step=3)
    assert isinstance(cause_of(raised.value), df.CorruptError)


def test_a_damaged_record_makes_the_step_before_it_load(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for value in (1, 2):
        save({"w": w(value)}, run)
    flip(data_file(run, 2).with_name("manifest.json"), 40)
    found = {"w": w(0)}
    with caplog.at_level(logging.WARNING):
        assert load(found, run) == 1
    assert "manifest.json" in caplog.text


def test_damage_is_an_error_where_the_step_before_is_of_another_form(run: Path) -> None:
    save({"w": w(1, 4)}, run)
    save({"w": w(2, 7)}, run)
    damaged = data_file(run, 2)
    flip(damaged, data_start(damaged))
    found = {"w": w(0, 7)}
    with pytest.raises(CheckpointException) as raised:
        load(found, run)
    cause = cause_of(raised.value)
    assert isinstance(cause, df.CorruptError)
    assert cause.state_modified


def test_nothing_to_load(run: Path) -> None:
    with pytest.raises(CheckpointException, match="No such file or directory"):
        load({"w": w(0)}, run)
    with df.Checkpointer(run) as ckpt:
        handle = ckpt.save(1, {"w": w(1)})
        assert handle is not None
        handle.wait()
    with pytest.raises(CheckpointException, match=r"not saved through deepfreeze\.dcp"):
        load({"w": w(0)}, run)


def test_shapes_and_dtypes_are_dcps_affair(run: Path) -> None:
    save({"w": w(1.5)}, run)
    with pytest.raises(CheckpointException, match="Size mismatch"):
        load({"w": w(0, 2)}, run)
    found = {"w": torch.zeros(3, 5, dtype=torch.bfloat16)}
    load(found, run)
    assert torch.equal(found["w"], w(1.5).bfloat16())


def test_tied_tensors_are_filled_by_one_after_the_other(run: Path) -> None:
    part = _Part(ANY, w(0, 1000), direct=True)
    inside = _Part(ANY, part.live[100:200], direct=True)
    beside = _Part(ANY, w(0, 3), direct=True)
    _keep_apart([inside, part, beside])
    assert [one.direct for one in (part, inside, beside)] == [True, False, True]
    save({"a": w(1, 1000), "b": w(2, 1000)}, run)
    tied = w(0, 1000)
    load({"a": tied, "b": tied}, run)
    assert torch.equal(tied, w(2, 1000))


def test_autograd_is_told_that_memory_was_written(run: Path) -> None:
    save({"w": w(1)}, run)
    live = w(0)
    version = live._version
    load({"w": live}, run)
    assert live._version > version


def test_the_writer_of_a_planner_that_changes_what_it_writes(run: Path) -> None:
    class Halving(DefaultSavePlanner):
        def transform_object(self, write_item: Any, object: Any) -> Any:
            if isinstance(object, torch.Tensor):
                return object / 2
            return io.BytesIO(pickle.dumps({"wrapped": object}))

    save({"w": w(2), "n": 5}, run, planner=Halving())
    found = {"w": w(0), "n": 0}
    with pytest.raises(CheckpointException, match="n could only be stored as a pickle"):
        load(found, run)
    assert torch.equal(found["w"], w(0))

    class Unwrapping(DefaultLoadPlanner):
        def load_bytes(self, read_item: Any, value: io.BytesIO) -> None:
            self.original_state_dict["n"] = pickle.load(value)["wrapped"]

    load(found, run, allow_pickle=True, planner=Unwrapping())
    assert_equal(found, {"w": w(1), "n": 5})


def test_what_has_no_form_but_a_pickle_is_loaded_on_demand_only(run: Path) -> None:
    parameter = torch.nn.Parameter(w(1))
    state = {"point": Point(1, 2), "n": 5, "pair": (parameter,), "long": [Point(1, 2)] * 2000}
    state["has"] = (Stateful(),)
    for _ in range(2):  # that the step before is no better must not be tried
        save(state, run)
    found = dict.fromkeys(state)
    with pytest.raises(CheckpointException, match="step 2: has, long, pair, point could only be"):
        load(found, run)
    wanted = {"n": 0}
    load(wanted, run)
    assert wanted == {"n": 5}
    load(found, run, allow_pickle=True)
    assert type(found["point"]) is Point
    assert (found["point"], found["n"], found["long"]) == (Point(1, 2), 5, state["long"])
    assert type(found["pair"][0]) is torch.nn.Parameter  # type: ignore[index]
    assert type(found["has"][0]) is Stateful  # type: ignore[index]


def test_no_pickle_is_in_what_can_be_encoded(run: Path) -> None:
    save({"w": w(1), "n": (1, "x"), "groups": [{"lr": 0.1, "betas": (0.9, 0.99)}]}, run)
    tree = _core.open_checkpoint(_core.list_checkpoints(str(run))[0]).objects(0)
    assert '"pickled":{}' in tree
    loaded = df.Checkpointer(run).load()
    assert loaded["objects"]["n"] == (1, "x")
    assert loaded["planner"]["groups.0.betas"] == ("groups", 0, "betas")
    assert torch.equal(loaded["tensors"]["w"], w(1))


def test_parts_of_the_state_by_their_keys(run: Path) -> None:
    state = {"model": {"a": w(1), "b": w(2)}, "optim": {"lr": 0.5, "m": w(3)}, "list": [w(4), 1]}
    save(state, run)
    with quiet():
        everything = _load_state_dict_from_keys(storage_reader=StorageReader(run))
        model = _load_state_dict_from_keys({"model"}, storage_reader=StorageReader(run))
        leaf = _load_state_dict_from_keys("optim.lr", storage_reader=StorageReader(run))
    assert_equal(dict(sorted(everything.items())), dict(sorted(state.items())))
    assert_equal(model, {"model": state["model"]})
    assert leaf == {"optim": {"lr": 0.5}}


def test_metadata_has_one_chunk_for_each_tensor(run: Path) -> None:
    save({"m": {"w": w(1)}, "n": 5}, run, step=7)
    metadata = StorageReader(run).read_metadata()
    tensor = metadata.state_dict_metadata["m.w"]
    assert isinstance(tensor, TensorStorageMetadata)
    assert (tensor.size, tensor.properties.dtype) == (torch.Size([3, 5]), torch.float32)
    assert [tuple(chunk.sizes) for chunk in tensor.chunks] == [(3, 5)]
    assert isinstance(metadata.state_dict_metadata["n"], BytesStorageMetadata)
    assert metadata.planner_data == {"m.w": ("m", "w"), "n": ("n",)}
    assert metadata.storage_meta is not None
    assert metadata.storage_meta.load_id == "7"


def test_a_planner_that_does_not_flatten(run: Path) -> None:
    state = {"w": w(1), "deep": {"n": 1, "t": w(2)}}
    save(state, run, planner=DefaultSavePlanner(flatten_state_dict=False))
    found = {"w": w(0), "deep": None}
    # With flatten_sharded_tensors it loads values into a copy.
    load(found, run, planner=DefaultLoadPlanner(False, flatten_sharded_tensors=False))
    assert_equal(found, state)


def test_cached_plans_of_a_planner_are_taken(run: Path) -> None:
    class Caching(DefaultSavePlanner):
        """Under a name of its own: DCP keeps its caches by that."""

    with StorageWriter(run) as writer, quiet():
        for value in (1, 2, 3):
            planner = Caching(enable_plan_caching=True)
            dcp.save({"w": w(value), "n": value}, storage_writer=writer, planner=planner)
        found = {"w": w(0), "n": 0}
        assert load(found, run) == 3
        assert_equal(found, {"w": w(3), "n": 3})


def test_without_collectives_is_refused(run: Path) -> None:
    with quiet(), pytest.raises(df.CheckpointError, match="use_collectives=False is refused"):
        dcp.save({"w": w(1)}, storage_writer=StorageWriter(run), use_collectives=False)
    assert not run.exists()


def test_what_can_not_be_stored_is_named_before_anything_is_written(run: Path) -> None:
    for bad in (torch.eye(3).to_sparse(), torch.empty(3, device="meta")):
        with pytest.raises(CheckpointException, match=r"deep\.er: a Tensor of torch"):
            save({"fine": w(1), "deep": {"er": bad}}, run)
    assert not run.exists()


def test_several_parts_of_one_tensor_on_a_rank_are_refused(run: Path) -> None:
    class Halves(DefaultSavePlanner):
        def create_local_plan(self) -> SavePlan:
            (item,) = super().create_local_plan().items
            return SavePlan([self.half(item, 0), self.half(item, 2)])

        def half(self, item: Any, first: int) -> Any:
            size = torch.Size([2, 5])
            chunk = ChunkStorageMetadata(torch.Size([first, 0]), size)
            data = replace(item.tensor_data, chunk=chunk)
            index = MetadataIndex("w", chunk.offsets)
            return replace(item, index=index, type=WriteItemType.SHARD, tensor_data=data)

        def resolve_data(self, write_item: Any) -> Any:
            return w(1, 2, 5)

    with pytest.raises(CheckpointException, match="w: this rank has several parts of it"):
        save({"w": w(1, 4, 5)}, run, planner=Halves(flatten_state_dict=False))


def test_ranks_meet_whatever_was_left_of_an_earlier_meeting() -> None:
    store: Any = torch.distributed.HashStore()

    def come(rank: int, judge: Callable[[list[Vote]], Verdict], seconds: float = 30.0) -> Verdict:
        return meet(Place("x", rank, 3, seconds), Vote(str(rank)), judge, store)

    def joined(votes: list[Vote]) -> Verdict:
        return Verdict(session="".join(vote.session for vote in votes))

    def failing(_: list[Vote]) -> Verdict:
        raise ZeroDivisionError("on purpose")

    for rank in range(3):
        with pytest.raises(TimeoutError, match="a rank did not come within"):
            come(rank, joined, 0.05)
    with ThreadPoolExecutor(3) as threads:  # rank 0 first: the keys that it finds are old
        found = threads.map(lambda rank: come(rank, joined), (0, 2, 1))
        assert {one.session for one in found} == {"012"}
        for one in threads.map(lambda rank: come(rank, failing), (2, 0, 1)):
            with pytest.raises(df.CheckpointError, match="rank 0: on purpose"):
                one.check()


def test_a_run_stays_open_between_saves_and_for_all_its_writers(run: Path) -> None:
    one, other = StorageWriter(run), StorageWriter(str(run))
    assert session_of(run) is one._session is other._session
    with quiet():
        for writer in (one, other, one):
            dcp.save({"w": w(1)}, storage_writer=writer)
        assert len(list(run.glob("generation-*"))) == 1
        one.close()
        dcp.save({"w": w(2)}, storage_writer=other)
        assert len(list(run.glob("generation-*"))) == 2
        changed = StorageWriter(run, keep_last=1)
        dcp.save({"w": w(3)}, storage_writer=changed)
    changed.close()  # waits for the thread that deletes older steps
    assert steps(run) == [5]
    del one, other, changed, writer
    assert save({"w": w(4)}, run).storage_meta.save_id == "6"


def test_a_save_that_fails_leaves_the_next_one_alone(run: Path) -> None:
    class Failing(DefaultSavePlanner):
        def resolve_data(self, write_item: Any) -> Any:
            raise ZeroDivisionError("on purpose")

    with StorageWriter(run) as writer, quiet():
        dcp.save({"w": w(1)}, storage_writer=writer)
        with pytest.raises(CheckpointException, match="on purpose"):
            dcp.save({"w": w(2)}, storage_writer=writer, planner=Failing())
        dcp.save({"w": w(3)}, storage_writer=writer)
    assert steps(run) == [2, 1]


def test_another_process_that_took_the_run_over_fences_one_save(run: Path) -> None:
    with StorageWriter(run) as writer, quiet():
        dcp.save({"w": w(1)}, storage_writer=writer)
        with df.Checkpointer(run) as other:
            handle = other.save(5, {"w": w(2)})
            assert handle is not None
            handle.wait()
        with pytest.raises(CheckpointException) as raised:
            dcp.save({"w": w(3)}, storage_writer=writer)
        assert isinstance(cause_of(raised.value), df.FencedError)
        dcp.save({"w": w(4)}, storage_writer=writer)
    assert steps(run)[0] == 6


def test_a_pickled_writer_is_another_one_of_the_same_settings(run: Path) -> None:
    with StorageWriter(run, step=4, keep_last=None) as writer:
        again: StorageWriter = pickle.loads(pickle.dumps(writer))
        assert again._session is writer._session
        with quiet():
            dcp.save({"w": w(1)}, storage_writer=again)
    assert steps(run) == [4]
    assert not StorageWriter.validate_checkpoint_id("s3://bucket/run")
