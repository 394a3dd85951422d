"""Farther tiers of a run, from Python."""

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import nn

import deepfreeze as df

SECONDS = 60.0  # for waits that must not hang


class Training:
    """A small training whose state follows from its number of steps."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.model = nn.Linear(30, 30)
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.state = {"model": self.model, "optimizer": self.optimizer}

    def step(self) -> None:
        """One update, always by the same gradient."""
        self.optimizer.zero_grad()
        self.model(torch.ones(2, 30)).square().sum().backward()
        self.optimizer.step()

    def weights(self) -> torch.Tensor:
        """A copy."""
        return self.model.weight.detach().clone()


def train(ckpt: df.Checkpointer, training: Training, steps: range) -> df.SaveHandle:
    ckpt.attach(training.optimizer)
    handle = None
    for step in steps:
        training.step()
        handle = ckpt.save(step, training.state)
    assert handle is not None
    return handle


def data_file(attempt: str) -> Path:
    (found,) = Path(attempt).glob("*.safetensors")
    return found


def flip_last_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def steps_of(run: Path) -> list[int]:
    with df.Checkpointer(run, read_only=True) as ckpt:
        return [info.step for info in ckpt.checkpoints()]


def test_durable_is_committed_on_the_last_tier(tmp_path: Path) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    with df.Checkpointer(near, tiers=[df.tier(far, every=2)]) as ckpt:
        handle = train(ckpt, Training(), range(1, 4))
        handle.wait("durable", SECONDS)
        assert handle.status().tiers == ((str(far), "not meant"),)
        ckpt.drain(SECONDS)
        (status,) = ckpt.tier_status()
        assert (status.path, status.committed, status.waiting) == (str(far), 1, 0)
        assert status.error is None
        assert status.bytes_total > 0
    assert steps_of(near) == [3, 2, 1]
    assert steps_of(far) == [2]


def test_a_checkpoint_with_a_metric_that_is_no_number_comes_to_the_tier(tmp_path: Path) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    training = Training()
    with df.Checkpointer(near, tiers=[df.tier(far)]) as ckpt:
        handle = ckpt.save(1, training.state, metrics={"loss": float("nan")})
        assert handle is not None
        handle.wait("durable", SECONDS)
    assert steps_of(far) == [1]


def test_a_tag_does_not_bring_a_step_back_to_a_tier(tmp_path: Path) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    tier = df.tier(far, keep=df.keep(last=1))
    training = Training()
    with df.Checkpointer(near, keep=df.keep(last=1), tiers=[tier]) as ckpt:
        train(ckpt, training, range(1, 2)).wait("durable", SECONDS)
        df.tag(near, 1, {"release": "1.0"})
        train(ckpt, training, range(2, 4)).wait("durable", SECONDS)
        ckpt.drain(SECONDS)
    assert steps_of(near) == [3, 1]
    assert steps_of(far) == [3]


def test_each_tier_keeps_by_its_own_rules(tmp_path: Path) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    tier = df.tier(far, keep=df.keep(last=3))
    with df.Checkpointer(near, keep=df.keep(last=1), tiers=[tier]) as ckpt:
        training = Training()
        for step in range(1, 6):
            train(ckpt, training, range(step, step + 1)).wait("durable", SECONDS)
            ckpt.detach()
    assert steps_of(near) == [5]
    assert steps_of(far) == [5, 4, 3]


def test_another_machine_goes_on_from_the_tier(tmp_path: Path) -> None:
    far = tmp_path / "far"
    training = Training()
    with df.Checkpointer(tmp_path / "one", tiers=[df.tier(far)]) as ckpt:
        train(ckpt, training, range(1, 3))
    other = Training()
    with df.Checkpointer(tmp_path / "two", tiers=[df.tier(far)]) as ckpt:
        assert [info.step for info in ckpt.checkpoints()] == [2, 1]
        assert ckpt.restore(other.state) == 2
        assert torch.equal(other.weights(), training.weights())
        assert ckpt.last_restore is not None
        assert all(path.startswith(str(far)) for path in ckpt.last_restore.tiers.values())
        train(ckpt, other, range(3, 4))
    assert steps_of(far) == [3, 2, 1]
    training.step()
    assert torch.equal(other.weights(), training.weights())


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory whose files are lost in a restart of the machine."""
    shared = Path("/dev/shm")
    if not shared.is_dir():
        pytest.skip("LEFT OUT: there is no /dev/shm")
    path = Path(tempfile.mkdtemp(dir=shared))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def test_memory_is_the_first_tier(memory: Path, tmp_path: Path) -> None:
    near, far = memory / "run", tmp_path / "far"
    tiers = [df.tier(far, every=2)]
    training, other = Training(), Training()
    with df.Checkpointer(near, keep=df.keep(last=1), tiers=tiers) as ckpt:
        train(ckpt, training, range(1, 6)).wait("local", SECONDS)
    assert (steps_of(near), steps_of(far)) == ([5], [4, 2])
    killed = Training()
    with df.Checkpointer(near, tiers=tiers) as ckpt:
        assert ckpt.restore(killed.state) == 5  # after the death of a process
    assert torch.equal(killed.weights(), training.weights())
    shutil.rmtree(near)  # and after a restart of the machine:
    with df.Checkpointer(near, tiers=tiers) as ckpt:
        assert ckpt.restore(other.state) == 4
        train(ckpt, other, range(5, 6))
    assert torch.equal(other.weights(), training.weights())


@pytest.mark.parametrize("fault", ["flip", "truncate", "remove", "manifest"])
def test_a_bad_copy_is_read_from_the_next_tier_and_healed(tmp_path: Path, fault: str) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    training = Training()
    with df.Checkpointer(near, tiers=[df.tier(far)]) as ckpt:
        train(ckpt, training, range(1, 3)).wait("durable", SECONDS)
        bad = ckpt.checkpoints()[0].path
        assert bad.startswith(str(near))
        if fault == "flip":
            flip_last_byte(data_file(bad))
        elif fault == "truncate":
            data_file(bad).write_bytes(data_file(bad).read_bytes()[:-5000])
        elif fault == "remove":
            data_file(bad).unlink()
        else:
            flip_last_byte(Path(bad) / "manifest.json")
        other = Training()
        assert ckpt.restore(other.state) == 2
        assert torch.equal(other.weights(), training.weights())
        assert ckpt.last_restore is not None
        assert ckpt.last_restore.fell_back_from == []
        assert bool(ckpt.last_restore.mended) == (fault != "manifest")
        ckpt.drain(SECONDS)
    with df.Checkpointer(near, read_only=True) as ckpt:
        assert [(info.step, info.fault) for info in ckpt.checkpoints()] == [(2, ""), (1, "")]
        assert ckpt.verify(2) == []


def test_a_fault_on_all_tiers_falls_back_and_says_so(tmp_path: Path) -> None:
    with df.Checkpointer(tmp_path / "near", tiers=[df.tier(tmp_path / "far")]) as ckpt:
        train(ckpt, Training(), range(1, 3)).wait("durable", SECONDS)
        ckpt.drain(SECONDS)
        newest = ckpt.checkpoints()[0]
        for path in (newest.path, *newest.copies):
            flip_last_byte(data_file(path))
        assert ckpt.restore(Training().state) == 1
        assert ckpt.last_restore is not None
        assert [step for step, _ in ckpt.last_restore.fell_back_from] == [2]


def test_a_slow_tier_holds_nobody_up(tmp_path: Path) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    tier = df.tier(far, rate=1, close_seconds=0.0)
    ckpt = df.Checkpointer(near, keep=df.keep(last=1), tiers=[tier])
    handle = train(ckpt, Training(), range(1, 30))
    handle.wait("local", SECONDS)
    assert not handle.durable.done()
    ckpt.wait()  # for saves, and not for tiers
    with pytest.raises(df.CheckpointTimeoutError, match="far"):
        ckpt.drain(0.1)
    assert ckpt.failed_saves == 0
    assert len(ckpt.in_flight()) >= 1
    ckpt.close()
    assert isinstance(handle.durable.exception(), df.CheckpointError)
    assert handle.local.exception() is None
    assert steps_of(near)[0] == 29


def behind(path: Path, on_busy: Literal["block", "skip"]) -> df.Checkpointer:
    """Two checkpoints wait for a tier that is gone, and there is room for no third."""
    far = path / "far"
    tier = df.tier(far, keep=df.keep(every=1), close_seconds=SECONDS)
    with df.Checkpointer(path / "probe") as probe:
        train(probe, Training(), range(1, 2)).wait("local", SECONDS)
        size = probe.checkpoints()[0].bytes
    ckpt = df.Checkpointer(
        path / "near",
        keep=df.keep(last=1),
        tiers=[tier],
        bytes_max=f"{3.5 * size / 1000}kB",
        on_busy=on_busy,
        prometheus_textfile=path / "near.prom",
    )
    training = Training()
    train(ckpt, training, range(1, 2)).wait("durable", SECONDS)
    ckpt.detach()
    far.rename(path / "away")
    for step in (2, 3):
        train(ckpt, training, range(step, step + 1)).wait("local", SECONDS)
        ckpt.detach()
    return ckpt


def test_saves_without_room_are_skipped_until_the_tier_has_caught_up(tmp_path: Path) -> None:
    with behind(tmp_path, "skip") as ckpt:
        state = Training().state
        assert [ckpt.save(step, state) for step in (4, 5)] == [None, None]
        assert ckpt.tier_status()[0].saves_refused == 2
        assert steps_of(tmp_path / "near") == [3, 2, 1]
        (tmp_path / "away").rename(tmp_path / "far")
        ckpt.drain(SECONDS)
        handle = ckpt.save(6, state)
        assert handle is not None
        handle.wait("durable", SECONDS)
    assert steps_of(tmp_path / "far") == [6, 3, 2, 1]
    text = (tmp_path / "near.prom").read_text()
    assert re.search(r"deepfreeze_saves_skipped_total\{.*\} 2\n", text)
    assert re.search(r"deepfreeze_tier_refused_saves_total\{.*\} 2\n", text)


def test_a_blocking_save_without_room_fails_if_the_tier_is_down(tmp_path: Path) -> None:
    with behind(tmp_path, "block") as ckpt:
        while ckpt.tier_status()[0].error is None:  # it is known to be down
            pass
        handle = ckpt.save(4, Training().state)
        assert handle is not None
        with pytest.raises(
            df.CheckpointError, match=r"save step 4: no room in .*near.* \(bytes_max"
        ):
            handle.wait("local", SECONDS)
        (tmp_path / "away").rename(tmp_path / "far")
    assert steps_of(tmp_path / "far") == [3, 2, 1]


@pytest.mark.parametrize("bytes_max", ["", "500GB/s", "much", 0, "0", -1, 1e30, float("nan")])
def test_a_bytes_max_that_is_not_understood(tmp_path: Path, bytes_max: str | float) -> None:
    with pytest.raises(ValueError, match="bytes_max"):
        df.Checkpointer(tmp_path / "run", tiers=[df.tier(tmp_path / "far")], bytes_max=bytes_max)
    assert not (tmp_path / "run").exists()


def test_a_bytes_max_that_could_never_count(tmp_path: Path) -> None:
    with pytest.raises(df.CheckpointError, match=r"bytes_max.*give both"):
        df.Checkpointer(tmp_path / "run", tiers=[df.tier(tmp_path / "far")], bytes_max="2TB")
    with pytest.raises(df.CheckpointError, match=r"bytes_max.*give both"):
        df.Checkpointer(tmp_path / "run", keep=df.keep(last=1), bytes_max="2TB")


@pytest.mark.parametrize(
    ("rate", "bytes_per_second"),
    [("500MB/s", 500_000_000), ("1.5 GiB/s", 1_610_612_736), (1e6, 1_000_000), ("10k", 10_000)],
)
def test_rates(rate: str | float, bytes_per_second: int) -> None:
    assert df.tier("/far", rate=rate).bytes_per_second == bytes_per_second


@pytest.mark.parametrize("rate", ["fast", "", "-1MB/s", 0, "5 miles/s", float("inf")])
def test_rates_that_are_not_understood(rate: str | float) -> None:
    with pytest.raises(ValueError, match="rate"):
        df.tier("/far", rate=rate)


def test_tiers_that_make_no_sense(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="every"):
        df.tier(tmp_path, every=0)
    for of_a_store in ({"endpoint": "https://s"}, {"region": "r"}, {"credentials": dict}):
        with pytest.raises(ValueError, match="are for object stores"):
            df.tier(tmp_path, **of_a_store)
    for path in (tmp_path / "run", tmp_path / "run" / "inside", tmp_path):
        with pytest.raises(df.CheckpointError, match="same directory"):
            df.Checkpointer(tmp_path / "run", tiers=[df.tier(path)])
