"""Adoption gives back what was live at save(), and only because its fence waits; no speeds."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import subprocess
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import deepfreeze as df
from bench.adoption.home import Home
from bench.adoption.library import ChecksumTime
from bench.adoption.savers import ADOPTION, Adopted, AdoptedUnchecked
from bench.e2e import measure, report
from bench.e2e.measure import Experiment
from bench.e2e.savers import KEEP_LAST, Saver
from bench.e2e.workloads import Parts, Training, Workload, adam, classified

ROOT = Path(__file__).resolve().parents[1]
SEED = 11
RESTORABLE = [time for time in ChecksumTime if time is not ChecksumTime.NEVER]
SLAB_BYTES = 4 * 1024 * 1024


def slabs_parts() -> Parts:
    """Some slabs, the last one odd, and statistics that change in forward."""
    layers = [nn.Linear(64, 1024), nn.BatchNorm1d(1024), nn.Linear(1024, 1021)]
    model = nn.Sequential(*layers)
    return Parts(model, adam, nn.functional.cross_entropy, classified((8, 64), 1021))


SLABS = Workload("some slabs", 4, slabs_parts)


def state_of(training: Training) -> dict[str, object]:
    return {**training.state, "rng": df.RNG()}


class Fencing:
    """Has the training loop fence before its update."""

    def __init__(self, home: Home | None) -> None:
        self.home = home

    def before_update(self) -> None:
        if self.home is not None:
            self.home.native.fence()

    def before_average(self) -> None:
        """Nothing averages here."""


def built(seed: int) -> Training:
    """With the state of its optimizer."""
    training = SLABS.build(seed, in_backward=False)
    training.train_step(1, Fencing(None))
    return training


@contextmanager
def at_home(
    training: Training, path: Path, time: ChecksumTime, *, has_fences: bool = True
) -> Iterator[Home]:
    home = Home(state_of(training), training.optimizers.values(), path, time, has_fences=has_fences)
    try:
        yield home
    finally:
        home.native.close()


def snapshot(training: Training) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in training.tensors()]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(map(torch.equal, one, other)) and len(one) == len(other)


def restored(path: Path, step: int) -> list[Tensor]:
    """By DeepFreeze, into a state of other values."""
    training = built(SEED + 1)
    with_other_values = snapshot(training)
    reader = df.Checkpointer(path)
    assert reader.restore(state_of(training), step=step) == step
    reader.close()
    assert not same(snapshot(training), with_other_values)
    return snapshot(training)


def saved_and_trained_on(home: Home, training: Training) -> list[Tensor]:
    """The state as it was at save(); training has gone on when it returns."""
    home.save(1)
    wanted = snapshot(training)
    training.train_step(2, Fencing(home))
    assert not same(snapshot(training), wanted)
    home.native.wait()
    return wanted


def lives_in(home: Home, tensor: Tensor) -> bool:
    base = torch.frombuffer(home.native.memory, dtype=torch.uint8)
    return 0 <= tensor.data_ptr() - base.data_ptr() < base.nbytes


def test_what_optimizers_own_lives_in_the_arena_and_keeps_its_values(tmp_path: Path) -> None:
    training, other = built(SEED), built(SEED)
    parameters = list(training.parts.model.parameters())
    with at_home(training, tmp_path / "run", ChecksumTime.BEFORE_RETURN) as home:
        assert same(snapshot(training), snapshot(other))
        assert all(lives_in(home, parameter) for parameter in parameters)
        states = training.optimizers["all"].state.values()
        assert all(lives_in(home, value) for state in states for value in state.values())
        assert not any(lives_in(home, buffer) for buffer in training.parts.model.buffers())
        assert sum(tensor.nbytes for tensor in training.tensors()) > 2 * SLAB_BYTES
        losses = [each.train_step(2, Fencing(home)) for each in (training, other)]
        assert losses[0] == losses[1]
        assert same(snapshot(training), snapshot(other))


@pytest.mark.parametrize("time", RESTORABLE, ids=lambda time: str(time.name))
def test_deepfreeze_restores_what_was_live_at_the_save(time: ChecksumTime, tmp_path: Path) -> None:
    training = built(SEED)
    with at_home(training, tmp_path / "run", time) as home:
        wanted = saved_and_trained_on(home, training)
        outcome = home.native.outcome(1)
    assert outcome is not None
    assert (outcome.committed, outcome.error) == (True, "")
    reader = df.Checkpointer(tmp_path / "run")
    assert reader.verify(1) == []
    reader.close()
    assert same(restored(tmp_path / "run", 1), wanted)


def test_without_the_fence_the_file_is_of_another_moment(tmp_path: Path) -> None:
    # Nothing is read before wait(), so that no timing decides.
    training = built(SEED)
    path = tmp_path / "run"
    with at_home(training, path, ChecksumTime.AT_FENCE, has_fences=False) as home:
        wanted = saved_and_trained_on(home, training)
    assert not same(restored(path, 1), wanted)


def test_without_checksums_a_file_is_refused(tmp_path: Path) -> None:
    training = built(SEED)
    with at_home(training, tmp_path / "run", ChecksumTime.NEVER) as home:
        saved_and_trained_on(home, training)
    reader = df.Checkpointer(tmp_path / "run")
    assert reader.verify(1) != []
    reader.close()


def test_the_newest_checkpoints_stay(tmp_path: Path) -> None:
    training = built(SEED)
    with at_home(training, tmp_path / "run", ChecksumTime.BEHIND_NORMAL) as home:
        for step in range(1, 2 * KEEP_LAST + 1):
            home.save(step)
            training.train_step(step, Fencing(home))
    reader = df.Checkpointer(tmp_path / "run")
    assert reader.steps() == [KEEP_LAST + 1, 2 * KEEP_LAST]
    assert all(reader.verify(step) == [] for step in reader.steps())
    reader.close()


def test_what_leaves_its_place_is_copied_again(tmp_path: Path) -> None:
    training = built(SEED)
    with at_home(training, tmp_path / "run", ChecksumTime.AT_FENCE) as home:
        optimizer = training.optimizers["all"]
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        values = [value for state in optimizer.state.values() for value in state.values()]
        assert not any(lives_in(home, value) for value in values)
        wanted = saved_and_trained_on(home, training)
    assert same(restored(tmp_path / "run", 1), wanted)


@pytest.mark.parametrize("saver", ADOPTION, ids=lambda saver: str(saver.name))
def test_a_segment_leaves_nothing_of_its_training_nor_of_the_arena(
    saver: type[Saver], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[weakref.ref[object]] = []

    def make_parts() -> Parts:
        parts = slabs_parts()
        left.append(weakref.ref(parts.model))
        return parts

    def watch(home: Home, *arguments: object, **options: object) -> None:
        original(home, *arguments, **options)  # type: ignore[arg-type]
        left.append(weakref.ref(home.native.memory))

    original = Home.__init__
    monkeypatch.setattr(Home, "__init__", watch)
    workload = dataclasses.replace(SLABS, make_parts=make_parts)
    one = Experiment("slabs", workload, 1, (saver,), 1, 2, SEED, settle_seconds=0.0)
    result = report.Result(one, list(measure.run(one, tmp_path, lambda _: lambda _: None)))
    assert [segment.fault for segment in result.segments] == [""]
    assert [each() for each in left] == [None, None]


def command(place: Path, *arguments: str) -> list[str]:
    program = [sys.executable, "-m", "bench.adoption", "--smoke", "--seed", str(SEED)]
    return [*program, "--directory", str(place), *arguments]


def test_smoke_compares_all_ways_with_a_run_without_checkpoints(tmp_path: Path) -> None:
    files = ["--json", str(tmp_path / "all.json"), "--markdown", str(tmp_path / "table.md")]
    words = command(tmp_path, "--every", "2,1", *files)
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    experiments = json.loads((tmp_path / "all.json").read_text())["experiments"]
    assert [one["every"] for one in experiments] == [2, 1]
    names = ["none", "df-latency", "df-throughput", *(saver.name for saver in ADOPTION)]
    for one in experiments:
        assert [row["saver"] for row in one["rows"]] == names
        for row in one["rows"]:
            saves = 0 if row["saver"] in ("none", "adopt-unsaved") else one["steps"] // one["every"]
            assert row["status"] == "ok", row
            assert row["saves_committed"] == row["saves_requested"] == one["rounds"] * saves
            assert (row["ratio"] is None) == (row["saver"] == "none")
            assert row["same_training"] is True
    assert "`python -m bench.adoption --every 2,1" in (tmp_path / "table.md").read_text()


@pytest.mark.parametrize("saver", [Adopted, AdoptedUnchecked], ids=lambda saver: str(saver.name))
def test_a_save_that_fails_lets_the_fence_go(saver: type[Saver], tmp_path: Path) -> None:
    words = command(tmp_path, "--every", "1", "--rounds", "1", "--savers", saver.name)
    failing = {**os.environ, "DEEPFREEZE_FAIL": "part.write=error:EIO@3"}
    done = subprocess.run(
        words, cwd=ROOT, env=failing, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED" in done.stdout
    assert "part.write" in done.stdout
