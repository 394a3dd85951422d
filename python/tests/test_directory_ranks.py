"""Ranks that have nothing but a directory. They are threads here."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

import deepfreeze as df

T = TypeVar("T")
SECONDS = 60.0  # a deadline for calls that must not hang


def as_ranks(world_size: int, work: Callable[[int], T]) -> list[T]:
    with ThreadPoolExecutor(world_size) as pool:
        return list(pool.map(work, range(world_size)))


def met(place: Path, world_size: int) -> list[df.DirectoryRanks]:
    def meet(rank: int) -> df.DirectoryRanks:
        return df.DirectoryRanks(place, rank=rank, world_size=world_size, timeout_seconds=SECONDS)

    return as_ranks(world_size, meet)


def test_all_hear_what_they_are_told(tmp_path: Path) -> None:
    ranks = met(tmp_path / "ranks", 4)
    given = [b"", b"x", b"y" * 1_000_000, bytes(range(256))]
    for _ in range(5):
        gathered = as_ranks(4, lambda rank: ranks[rank].gather(given[rank]))
        assert gathered == [given, None, None, None]
        answers = as_ranks(4, lambda rank: ranks[rank].scatter(given if rank == 0 else []))
        assert answers == given
    assert [(one.rank, one.world_size) for one in ranks] == [(rank, 4) for rank in range(4)]


DEAD = "e3b0c442.0123456789abcdef"  # of the job without a name


def test_what_an_earlier_job_left_is_in_no_meeting(tmp_path: Path) -> None:
    later = time.time_ns() + 3600 * 10**9
    for rank in (1, 7):
        (tmp_path / f"rank-{rank}.{DEAD}").touch()
        os.utime(tmp_path / f"rank-{rank}.{DEAD}", ns=(later, later))  # by another clock
    for number, text in enumerate(("null", "{", '["dead", "dead"]')):
        meeting = tmp_path / f"meeting-e3b0c442.{number:016x}"
        meeting.mkdir()
        (meeting / "begun.json").write_text(text)
        (meeting / "called.json").write_text(text)
    ranks = met(tmp_path, 2)
    assert as_ranks(2, lambda rank: ranks[rank].gather(b"%d" % rank))[0] == [b"0", b"1"]
    assert len(list(tmp_path.iterdir())) == 1, "the meeting itself"


def test_files_of_others_stay(tmp_path: Path) -> None:
    (tmp_path / "rank-0.log").write_text("mine")
    (tmp_path / "meeting-notes").mkdir()
    met(tmp_path, 2)
    assert (tmp_path / "rank-0.log").read_text() == "mine"
    assert (tmp_path / "meeting-notes").is_dir()


def test_jobs_with_names_of_their_own_do_not_mix(tmp_path: Path) -> None:
    def meet(number: int) -> df.DirectoryRanks:
        return df.DirectoryRanks(
            tmp_path, rank=number // 2, world_size=3, job="ab"[number % 2], timeout_seconds=SECONDS
        )

    ranks = as_ranks(6, meet)
    gathered = as_ranks(6, lambda number: ranks[number].gather(b"ab"[number % 2 :][:1]))
    assert gathered[:2] == [[b"a"] * 3, [b"b"] * 3]


def test_a_rank_that_is_there_twice_is_said_so(tmp_path: Path) -> None:
    def come(number: int) -> str:
        time.sleep(0.3 if number == 0 else 0)  # rank 0 finds both
        with pytest.raises(TimeoutError) as raised:
            df.DirectoryRanks(tmp_path, rank=min(number, 1), world_size=2, timeout_seconds=1.0)
        return str(raised.value)

    assert "ranks [1] have several processes" in as_ranks(3, come)[0]


def test_the_next_job_takes_the_directory(tmp_path: Path) -> None:
    before = met(tmp_path, 2)
    after = met(tmp_path, 2)
    for rank in range(2):
        with pytest.raises(ConnectionError, match="another job has met"):
            before[rank].gather(b"")
    assert as_ranks(2, lambda rank: after[rank].gather(b"%d" % rank))[0] == [b"0", b"1"]


def test_another_world_size_is_an_error(tmp_path: Path) -> None:
    def come(rank: int) -> str:
        with pytest.raises((ValueError, TimeoutError)) as raised:
            df.DirectoryRanks(tmp_path, rank=rank, world_size=2 + rank, timeout_seconds=2.0)
        return str(raised.value)

    said = as_ranks(2, come)
    assert "ranks [1] of 2 have not answered" in said[0] or "ranks [1] of 2 did not come" in said[0]
    assert "rank 0 says that there are 2, rank 1 that there are 3" in said[1]


def test_who_does_not_come_is_named(tmp_path: Path) -> None:
    def come(rank: int) -> str:
        if rank == 1:
            return ""
        with pytest.raises(TimeoutError) as raised:
            df.DirectoryRanks(tmp_path, rank=rank, world_size=3, timeout_seconds=0.3)
        return str(raised.value)

    said = as_ranks(3, come)
    assert "ranks [1] of 3 did not come" in said[0]
    assert "has not called rank 2" in said[2]


def test_who_does_not_answer_is_an_error_in_time(tmp_path: Path) -> None:
    ranks = met(tmp_path, 2)
    ranks[0].timeout_seconds = 0.1
    with pytest.raises(TimeoutError, match=r"gather: a rank did not come within 0\.1 s"):
        ranks[0].gather(b"")


@pytest.mark.parametrize(("rank", "world_size"), [(-1, 2), (2, 2), (0, 0)])
def test_a_rank_that_can_not_be(tmp_path: Path, rank: int, world_size: int) -> None:
    with pytest.raises(ValueError, match=f"rank {rank} of {world_size}"):
        df.DirectoryRanks(tmp_path, rank=rank, world_size=world_size)


def test_they_save_and_restore_together(tmp_path: Path) -> None:
    ranks = met(tmp_path / "ranks", 3)

    def save(rank: int) -> bool:
        state = {"w": np.arange(3_000_000.0), "own": df.per_rank(np.full(3, rank))}
        with df.Checkpointer(tmp_path / "run", ranks=ranks[rank]) as ckpt:
            handle = ckpt.save(1, state)
            assert handle is not None
            handle.wait("durable", SECONDS)
            live = {"w": np.zeros(3_000_000), "own": df.per_rank(np.zeros(3, dtype=np.int64))}
            ckpt.restore(live)
        own = live["own"]
        assert isinstance(own, df.PerRank)
        return np.array_equal(live["w"], state["w"]) and bool((own.value == rank).all())

    assert as_ranks(3, save) == [True] * 3
    info = df._core.list_checkpoints(str(tmp_path / "run"))[0]
    assert info.world_size == 3


def test_a_rank_that_was_not_there_keeps_what_is_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def state(value: int) -> dict[str, Any]:
        return {"all": np.full(3, value), "own": df.per_rank(np.full(3, value))}

    with df.Checkpointer(tmp_path / "run") as ckpt:
        handle = ckpt.save(1, state(5))
        assert handle is not None
        handle.wait("durable", SECONDS)
    ranks = met(tmp_path / "ranks", 2)

    def restore(rank: int) -> tuple[int, int]:
        live = state(7 + rank)
        with df.Checkpointer(tmp_path / "run", ranks=ranks[rank]) as ckpt:
            assert ckpt.restore(live) == 1
        return live["all"][0], live["own"].value[0]

    assert as_ranks(2, restore) == [(5, 5), (5, 8)]
    assert "saved by 1 ranks, 2 are here" in caplog.text
    assert "left as it is here: own" in caplog.text


def test_ranks_that_fail_in_two_ways_say_the_same(tmp_path: Path) -> None:
    ranks = met(tmp_path / "ranks", 2)

    def restore(rank: int) -> Exception | None:
        with df.Checkpointer(tmp_path / "run", ranks=ranks[rank]) as ckpt:
            handle = ckpt.save(1, {"a": np.ones(3), "b": np.ones(3)})
            assert handle is not None
            handle.wait()
            key = "ab"[rank]
            try:
                ckpt.restore({"a": np.ones(3), "b": np.ones(3), key: np.ones(4)})
            except df.CheckpointError as error:
                return error
        return None

    one, other = as_ranks(2, restore)
    assert isinstance(one, df.CheckpointError)
    assert str(one) == str(other)


def test_all_ranks_restore_the_same_best_or_none(tmp_path: Path) -> None:
    ranks = met(tmp_path / "ranks", 2)

    def best(rank: int) -> list[Any]:
        told: list[Any] = []
        keep = df.keep(last=4, best=("loss", "min"))
        with df.Checkpointer(tmp_path / "run", ranks=ranks[rank], keep=keep) as ckpt:
            for step, loss in ((1, 2.0), (2, 1.0), (3, 3.0)):
                handle = ckpt.save(step, {"a": np.full(3, step)}, metrics={"loss": loss})
                assert handle is not None
                handle.wait("durable", SECONDS)
            state = {"a": np.zeros(3, dtype=np.int64)}
            told += [ckpt.restore(state, step="best"), int(state["a"][0])]
            for asked in ("best:acc:max", ("best", "latest")[rank], ("best", "bestt")[rank]):
                try:
                    ckpt.restore(state, step=asked)
                except df.CheckpointError as error:
                    told.append(error.code)
        return told

    assert as_ranks(2, best) == 2 * [[2, 2, "not_found", "mismatch", "invalid_argument"]]


def test_fewer_ranks_than_have_saved_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ranks = met(tmp_path / "ranks", 2)
    state = {"a": np.ones(3)}

    def save(rank: int) -> None:
        with df.Checkpointer(tmp_path / "run", ranks=ranks[rank]) as ckpt:
            handle = ckpt.save(1, state)
            assert handle is not None
            handle.wait()
            assert ckpt.restore(state) == 1

    as_ranks(2, save)
    assert not caplog.records
    with df.Checkpointer(tmp_path / "run", ranks=None) as ckpt:
        assert ckpt.restore(state) == 1
    assert [record.args[1:3] for record in caplog.records if record.args] == [(2, 1)]
