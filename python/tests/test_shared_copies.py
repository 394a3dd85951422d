"""Runs whose checkpoints share files: forked again and again, copied, and scrubbed."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import deepfreeze as df
from deepfreeze.base.program import find

_FROZEN = 4_500_000  # floats: 18 MB
_SHARED_BYTES = 4 * _FROZEN
_FORKS = 20
_COPIERS = {
    "cp": ["cp", "-r", "{run}", "{copy}"],
    "rsync": ["rsync", "-a", "{run}/", "{copy}"],
    "tar": ["sh", "-c", "mkdir {copy} && tar -C {run} -cf - . | tar -C {copy} -xf -"],
}


def state_at(step: int, frozen: int) -> dict[str, torch.Tensor]:
    return {
        "base": torch.arange(frozen, dtype=torch.float32),
        "head": torch.full((64,), step * 1.0),
    }


def expect(run: Path, step: int, frozen: int) -> None:
    """The newest checkpoint, by a new reader, and the verdict of the program on all."""
    found = {"base": torch.zeros(frozen), "head": torch.zeros(64)}
    with df.Checkpointer(run, read_only=True) as ckpt:
        assert ckpt.restore(found) == step
        assert ckpt.last_restore is not None
        assert ckpt.last_restore.fell_back_from == []
    wanted = state_at(step, frozen)
    assert all(torch.equal(found[key], wanted[key]) for key in wanted)
    assert program("verify", run)[0] == 0


def program(verb: str, run: Path, *words: str) -> tuple[int, Any]:
    native = find()
    assert native is not None
    command = [str(native), verb, str(run), "--json", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


def save(run: Path, steps: range, frozen: int) -> list[int]:
    """How many bytes each save shared."""
    shared = []
    with df.Checkpointer(run, keep=df.keep(last=3)) as ckpt:
        ckpt.restore(state_at(0, frozen))
        for step in steps:
            handle = ckpt.save(step, state_at(step, frozen))
            assert handle is not None
            handle.wait("durable")
            shared.append(handle.status().bytes_shared)
    return shared


@pytest.fixture(scope="module")
def shared_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three checkpoints, of which two are one file, and the third has its twin."""
    run = tmp_path_factory.mktemp("shared") / "run"
    assert save(run, range(1, 9), _FROZEN)[-3:] == [_SHARED_BYTES] * 3
    return run


@pytest.fixture
def copied_run(shared_run: Path, tmp_path: Path) -> Path:
    """With the links as they are."""
    subprocess.run(["cp", "-a", str(shared_run), str(tmp_path / "run")], check=True)
    return tmp_path / "run"


def data_files(run: Path) -> Iterator[Path]:
    yield from run.glob("step-*/*.safetensors")


def test_each_of_20_forks_of_forks_goes_on_when_its_parent_is_deleted(tmp_path: Path) -> None:
    frozen, seed = 1_000, random.SystemRandom().randrange(1 << 32)
    print(f"seed={seed}")
    draw = random.Random(seed)
    first = tmp_path / "run-00"
    save(first, range(1, 3), frozen)
    newest = {first: 2}
    for number in range(1, _FORKS + 1):
        parent = draw.choice(list(newest))
        new, step = tmp_path / f"run-{number:02}", newest[parent]
        df.fork(parent, step, new)
        newest[new] = step
        if draw.random() < 0.5:
            shutil.rmtree(parent)
            del newest[parent]
        expect(new, step, frozen)
        if draw.random() < 0.5:
            newest[new] = step + 1
            save(new, range(step + 1, step + 2), frozen)
    for run, step in newest.items():
        expect(run, step, frozen)
        save(run, range(step + 1, step + 3), frozen)
        expect(run, step + 2, frozen)


@pytest.mark.parametrize("copier", _COPIERS)
def test_a_copy_opens_verifies_and_goes_on(copier: str, shared_run: Path, tmp_path: Path) -> None:
    if shutil.which(copier) is None:
        pytest.skip(f"LEFT OUT: {copier} is not installed")
    copy = tmp_path / "copy"
    words = [word.format(run=shared_run, copy=copy) for word in _COPIERS[copier]]
    subprocess.run(words, check=True)
    if copier != "tar":  # which knows links
        assert {file.stat().st_nlink for file in data_files(copy)} == {1}
    expect(copy, 8, _FROZEN)
    assert save(copy, range(9, 16), _FROZEN)[-1] == _SHARED_BYTES
    expect(copy, 15, _FROZEN)


def test_a_scrub_reads_a_shared_file_once(shared_run: Path, copied_run: Path) -> None:
    on_disk = {file.stat().st_ino: file.stat().st_size for file in data_files(copied_run)}
    assert sum(size > _SHARED_BYTES for size in on_disk.values()) == 2, "two copies"
    status, report = program("scrub", copied_run, "--rate", "0")
    assert status == 0
    assert len(report["runs"][0]["attempts"]) == 3
    assert sum(on_disk.values()) <= report["bytes"] < 1.05 * sum(on_disk.values())


def test_a_scrub_names_each_checkpoint_that_a_bad_file_serves(copied_run: Path) -> None:
    steps = sorted(path.name for path in copied_run.glob("step-*"))
    (bad,) = (copied_run / steps[0]).glob("*-1-of-2.safetensors")
    with bad.open("r+b") as file:
        file.seek(9_000_000)
        byte = file.read(1)[0]
        file.seek(9_000_000)
        file.write(bytes([byte ^ 1]))
    fork = copied_run.with_name("fork")
    df.fork(copied_run, 7, fork)
    status, report = program("scrub", copied_run, str(fork), "--rate", "0")
    assert status == 1
    found = {
        attempt["directory"]: attempt["faults"][0]
        for attempt in report["runs"][0]["attempts"]
        if attempt["faults"]
    }
    assert sorted(found) == [steps[0], steps[2]], "the copies are linked in turn"
    for name, fault in found.items():
        assert fault["tensors"] == ["base"]
        other = steps[2] if name == steps[0] else steps[0]
        assert fault["also_in"] == [str(copied_run / other)]
    assert report["runs"][1]["good"], "the fork has the other copy"
