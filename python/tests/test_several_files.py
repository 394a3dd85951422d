"""A state with more names than one header takes: several files, one checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

import deepfreeze as df

TENSORS = 9000
PLAIN = "\u20ac\u00e4" * 2_000_000  # more text than one header takes


def state_of(value: float) -> dict[str, Any]:
    """Long names, so that few tensors are much text."""
    names = (f"{index:05d}.{'n' * 2000}" for index in range(TENSORS))
    return {"net": {name: torch.full((3,), value) for name in names}, "plain": PLAIN}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("several") / "run"
    state = state_of(1.0)
    with df.Checkpointer(path) as ckpt:
        ckpt.save(1, state).wait()
        for tensor in state["net"].values():
            tensor.add_(1)
        ckpt.save(2, state).wait()  # by the memo
    return path


def files_of(run: Path, step: int) -> list[Path]:
    return sorted(run.glob(f"step-{step:012d}-*/*.safetensors"))


def test_the_names_do_not_fit_into_one_file(run: Path) -> None:
    for step in (1, 2):
        names = {path.name for path in files_of(run, step)}
        count = len(names)
        assert count > 1
        stem = "rank-00000-of-00001"
        assert names == {f"{stem}-{file}-of-{count}.safetensors" for file in range(count)}


def test_all_is_restored_in_place(run: Path) -> None:
    live = state_of(0.0)
    live["plain"] = ""
    with df.Checkpointer(run) as ckpt:
        assert ckpt.restore(live) == 2
    assert all(torch.equal(tensor, torch.full((3,), 2.0)) for tensor in live["net"].values())
    assert live["plain"] == PLAIN


def test_some_of_it_is_loaded(run: Path) -> None:
    with df.Checkpointer(run) as ckpt:
        loaded = ckpt.load(1, keys=["net.08999.*", "net.00000.*"])
    assert [name[:5] for name in loaded["net"]] == ["00000", "08999"]
    assert all(torch.equal(tensor, torch.ones(3)) for tensor in loaded["net"].values())


def test_nothing_is_wrong_and_a_missing_file_is_named(run: Path) -> None:
    with df.Checkpointer(run) as ckpt:
        assert ckpt.verify() == []
    last = files_of(run, 1)[-1]
    away = last.rename(last.with_suffix(".away"))
    try:
        with df.Checkpointer(run) as ckpt, pytest.raises(df.IncompleteError, match=last.name):
            ckpt.load(1)
    finally:
        away.rename(last)


def test_each_file_is_one_of_safetensors(run: Path) -> None:
    names: list[str] = []
    for path in files_of(run, 2):
        with safe_open(path, framework="pt") as file:
            names += file.keys()
            if len(file.keys()) > 0:
                assert torch.equal(file.get_tensor(next(iter(file.keys()))), torch.full((3,), 2.0))
    assert sorted(names) == sorted(f"net.{name}" for name in state_of(0.0)["net"])
