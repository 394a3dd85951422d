"""Directories of torch.distributed.checkpoint, of one process and of two."""

import errno
import os
import textwrap
from pathlib import Path

import pytest
import torch
from import_kit import (
    DTYPES,
    import_it,
    imported,
    in_two_processes,
    metadata_of,
    random_tensor,
    refusal,
    write_dcp,
)
from testkit import Net, assert_same, same, state_bits

import deepfreeze as df
from deepfreeze.frameworks.torch.files import copy_box


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "dcp"


def test_every_dtype_is_the_same_bit_for_bit(folder: Path, run: Path) -> None:
    state = {str(dtype): random_tensor(dtype, 5, 3) for dtype in DTYPES}
    write_dcp(folder, state)
    found = imported(folder, run)
    # DCP's own reader takes a name apart at its dots no more than we do.
    assert set(found) == set(state)
    for name, tensor in state.items():
        assert_same(found[name], tensor)


def test_a_lazy_conjugate_or_negation_is_not_lost(folder: Path, run: Path) -> None:
    z, x = torch.tensor([1 + 2j, 3 - 4j]), torch.tensor([5.0, -6.0])
    state = {"conjugate": z.conj(), "negative": torch._neg_view(x)}
    write_dcp(folder, state)
    found = imported(folder, run)
    assert found["conjugate"].tolist() == [1 - 2j, 3 + 4j]
    assert found["negative"].tolist() == [-5.0, 6.0]


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("dtype", [torch.complex32, torch.complex64, torch.complex128])
def test_a_lazy_conjugate_is_put_into_its_place(dtype: torch.dtype) -> None:
    whole = torch.zeros(4, dtype=dtype)
    copy_box(whole, (slice(1, 3),), torch.tensor([1 + 2j, 3 - 4j]).to(dtype).conj())
    assert whole.tolist() == [0, 1 - 2j, 3 + 4j, 0]


def test_the_tree_is_as_it_was(folder: Path, run: Path) -> None:
    state = {
        "model": {"layer.weight": torch.ones(2, 2), "deep": {"er": torch.zeros(())}},
        "list": [torch.ones(1), {"a": torch.zeros(2)}, 7],
        "values": {"lr": 0.1, "betas": (0.9, 0.99), "name": "x", "none": None, "plain": [1, 2]},
        "empty": torch.empty(0, 3),
        "dtype": torch.float16,
    }
    write_dcp(folder, state)
    found = imported(folder, run)
    assert_same(found["model"]["layer.weight"], torch.ones(2, 2))
    assert_same(found["model"]["deep"]["er"], torch.zeros(()))
    assert_same(found["list"][1]["a"], torch.zeros(2))
    assert same(found["values"], state["values"])
    assert (found["list"][2], found["dtype"]) == (7, torch.float16)
    assert found["empty"].shape == (0, 3)


def test_what_dcp_does_not_store_is_none_or_missing(folder: Path, run: Path) -> None:
    write_dcp(folder, {"list": [{}, torch.ones(1)], "empty": {}, 7: "int"})
    found = imported(folder, run)
    assert found["list"][0] is None
    assert set(found) == {"list", "7"}


def test_without_a_flattening_planner_names_are_flat(folder: Path, run: Path) -> None:
    from torch.distributed.checkpoint import DefaultSavePlanner

    planner = DefaultSavePlanner(flatten_state_dict=False)
    write_dcp(folder, {"a.b": torch.ones(2), "c": 1}, planner=planner)
    assert metadata_of(folder).planner_data is None
    assert list(imported(folder, run)) == ["a.b", "c"]


def test_a_module_is_restored(folder: Path, run: Path) -> None:
    torch.manual_seed(1)
    model = Net()
    write_dcp(folder, {"model": model.state_dict(), "epoch": 4})
    assert import_it(folder, run, "--step", "4") == 0
    torch.manual_seed(2)
    other = Net()
    live = {"model": other.state_dict(), "epoch": 0}
    with df.Checkpointer(run) as ckpt:
        assert ckpt.restore(live) == 4
    assert live["epoch"] == 4
    assert state_bits(other) == state_bits(model)


SHARDED = textwrap.dedent(
    """
    import sys
    import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    rank, folder = int(sys.argv[1]), sys.argv[2]
    dist.init_process_group("gloo", init_method=f"file://{folder}.meeting", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    torch.manual_seed(5)
    whole = {
        "rows": torch.randn(5, 3),
        "columns": torch.randn(4, 7),
        "half": torch.randn(6, 2, 2).to(torch.bfloat16),
        "one": torch.randn(1, 4),
        "eight": torch.randn(4, 4).to(torch.float8_e4m3fn),
    }
    cuts = {"rows": 0, "columns": 1, "half": 1, "one": 0, "eight": 0}
    state = {
        name: distribute_tensor(whole[name], mesh, [Shard(axis)], src_data_rank=None)
        for name, axis in cuts.items()
    }
    state["all"] = distribute_tensor(torch.arange(9), mesh, [Replicate()], src_data_rank=None)
    optim = {"state": {"rows": {"exp_avg": state["rows"] * 2, "step": torch.tensor(3.0)}},
             "param_groups": [{"lr": 0.1, "params": ["rows"]}]}
    dcp.save({"model": state, "optim": optim, "epoch": 2}, checkpoint_id=folder)
    if rank == 0:
        torch.save(whole, folder + ".pt")
        torch.save(state, folder + ".rank0.pt")
    dist.barrier()
    dist.destroy_process_group()
    """
)


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The save of two processes that share a state; beside it, the same state whole."""
    folder = tmp_path_factory.mktemp("sharded") / "dcp"
    in_two_processes(SHARDED, folder)
    return folder


def test_a_state_of_two_processes_is_put_together(sharded: Path, run: Path) -> None:
    whole = torch.load(f"{sharded}.pt", weights_only=True)
    chunks = metadata_of(sharded).state_dict_metadata
    assert [len(chunks[f"model.{name}"].chunks) for name in ("rows", "columns", "half")] == [2] * 3
    found = imported(sharded, run)
    for name, tensor in whole.items():
        assert_same(found["model"][name], tensor)
    assert_same(found["model"]["all"], torch.arange(9))
    assert_same(found["optim"]["state"]["rows"]["exp_avg"], whole["rows"] * 2)
    assert found["optim"]["param_groups"] == [{"lr": 0.1, "params": ["rows"]}]

    live = {
        "model": {name: torch.zeros_like(found["model"][name]) for name in found["model"]},
        "optim": {
            "state": {"rows": {"exp_avg": torch.zeros(5, 3), "step": torch.tensor(0.0)}},
            "param_groups": [{"lr": 0.0, "params": ["rows"]}],
        },
        "epoch": 0,
    }
    with df.Checkpointer(run) as ckpt:
        assert ckpt.restore(live) == 0
    for name, tensor in whole.items():
        assert_same(live["model"][name], tensor)


def test_it_reads_what_dcp_itself_reads(sharded: Path, run: Path, tmp_path: Path) -> None:
    """The other way to the same bytes: torch's own converter."""
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    dcp_to_torch_save(sharded, tmp_path / "theirs.pt")
    theirs = torch.load(tmp_path / "theirs.pt", weights_only=True)
    ours = imported(sharded, run)
    assert list(ours) == list(theirs)
    for name, tensor in theirs["model"].items():
        assert_same(ours["model"][name], tensor)


def test_one_ranks_file_of_a_shared_state_is_no_state(
    sharded: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """torch loads it, if the program has imported DTensors."""
    code, message = refusal(Path(f"{sharded}.rank0.pt"), run, capsys)
    assert code == "unsupported"
    assert "rows is a box of a tensor that several ranks share" in message


@pytest.mark.parametrize(("cause", "code"), [("ENOSPC", "no_space"), ("EACCES", "io")])
def test_a_disk_that_gives_no_scratch_space_is_an_error(
    sharded: Path, run: Path, cause: str, code: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    number = getattr(errno, cause)

    def refuse(*_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    found, message = refusal(sharded, run, capsys)
    assert found == code
    assert message.endswith(f"of scratch space in {run.parent}: {os.strerror(number)}")
