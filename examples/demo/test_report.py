"""The demo's verdict: the faults that it finds, and the figures it derives."""

from __future__ import annotations

import random

from examples.demo.child import Job, Kill, draw_kill
from examples.demo.report import Trial, quantile, summary, text, worst_stall
from examples.demo.train import Outcome

JOB = Job("nt3", full=False, threads=2, steps=12)


def outcome(digest: str, *, seconds: float = 2.0, resumed_from: int = 0) -> Outcome:
    return Outcome(
        resumed_from=resumed_from,
        steps=12,
        seconds=seconds,
        digest=digest,
        stalls=[0.001, 0.003, 0.002],
        fences=[0.0, 0.002, 0.001],
        durable=[0.5],
        bytes=10**9,
        guarded_bytes=9 * 10**8,
    )


def trial(resumed: Outcome | None) -> Trial:
    return Trial(
        title="a trial",
        job=JOB,
        plain=[outcome("a", seconds=1.0), outcome("a", seconds=2.0)],
        checkpointed=[outcome("a", seconds=1.5), outcome("a", seconds=2.0)],
        kill=Kill(after_step=7, delay=0.1),
        resumed=resumed,
    )


def test_equal_states_are_no_fault() -> None:
    assert trial(outcome("a", resumed_from=6)).faults() == []


def test_a_different_final_state_is_a_fault() -> None:
    different = trial(outcome("b", resumed_from=7))
    assert len(different.faults()) == 1
    assert "NO" in text(different)
    assert summary(different)["identical"] is False


def test_a_checkpointed_run_that_ends_differently_is_a_fault() -> None:
    different = trial(outcome("a", resumed_from=7))
    different.checkpointed[1].digest = "b"
    assert len(different.faults()) == 1


def test_it_says_whether_the_checkpoint_is_why_the_end_is_different() -> None:
    different = trial(outcome("b", resumed_from=7))
    assert different.resumed is not None
    different.resumed.restored_digest = "at 7"
    different.plain_there = outcome("at 7")
    assert "computed differently" in different.faults()[-1]
    different.plain_there = outcome("otherwise at 7")
    assert "is not what a training without checkpoints has there" in different.faults()[-1]


def test_a_resume_from_before_the_save_in_flight_is_a_fault() -> None:
    assert len(trial(outcome("a", resumed_from=5)).faults()) == 1


def test_a_failed_save_a_failed_program_and_a_missing_resume_are_faults() -> None:
    bad = trial(None)
    bad.checkpointed[0].failed_saves = 2
    bad.program_faults.append("deepfreeze verify: exit 1")
    assert len(bad.faults()) == 3


def test_a_capture_that_was_not_lazy_is_a_fault() -> None:
    eager = trial(outcome("a", resumed_from=7))
    eager.checkpointed[0].guarded_bytes = 0
    assert len(eager.faults()) == 1


def test_the_stall_says_how_much_of_it_was_in_fences() -> None:
    figures = summary(trial(outcome("a", resumed_from=7)))
    assert figures["stall_seconds_median"] == 0.002
    assert figures["fence_seconds_median"] == 0.001


def test_the_ratio_compares_each_round_with_its_neighbour() -> None:
    assert trial(None).ratios() == [1.5, 1.0]
    assert summary(trial(outcome("a", resumed_from=7)))["run_time_ratio"] == 1.25


def test_rates_count_every_checkpoint() -> None:
    assert trial(None).rates() == [2.0, 2.0]


def test_p99_is_only_claimed_for_enough_saves() -> None:
    assert worst_stall([1.0, 2.0]) == ("max of 2", 2.0)
    assert worst_stall([float(i) for i in range(1, 201)]) == ("p99", 198.0)
    assert quantile([1.0, 2.0, 3.0], 0.5) == 2.0


def test_kills_come_after_a_commit_and_before_the_end() -> None:
    draw = random.Random(3)
    kills = [draw_kill(draw, JOB, 0.5) for _ in range(300)]
    assert {kill.after_step for kill in kills} == set(range(2, 11))
    assert all(0.0 <= kill.delay <= 0.5 for kill in kills)
