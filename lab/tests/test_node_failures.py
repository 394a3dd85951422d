"""Nodes that fail: what a job loses, by hand and by formulas; and the page and picture of it."""

import math
import random
from itertools import islice
from pathlib import Path

import pytest

from lab.experiments import node_failures
from lab.report import failures_picture
from lab.report.failures_page import NAMES, RESTARTS, percent
from lab.report.quoted import quoted
from lab.simulation import lost_time, model
from lab.simulation.failures import (
    FAR,
    PROTECTED,
    Copies,
    Event,
    Failures,
    Job,
    Saving,
    events,
    expected_loss,
    long_run,
    lost_share,
    parity_losses,
)
from lab.simulation.lost_time import (
    FAR_ONLY,
    NT3,
    PARITY,
    PARTNER,
    RANK0,
    SHARDED,
    STRATEGIES,
    Assumed,
    Trials,
)
from lab.simulation.machine import read_machine
from lab.tests.simulated import built
from lab.writers.menu import ROOT

ERRORS_MAX = 5.0  # standard ones: one draw in a million is farther off
PAIRS = Saving(10.0, 0.0, 5.0, Copies(1.0, 3.0, 10), Copies(2.0, 1.0), (0, 0, 1, 1), 1)


@pytest.fixture
def draw() -> random.Random:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    return random.Random(seed)


def test_a_cycle_is_training_and_then_a_save() -> None:
    saving = Saving(10.0, 2.0, 0.0, Copies(3.0, 0.0))
    assert [saving.work(seconds) for seconds in (0, 5, 11, 12, 13, 25)] == [0, 5, 10, 10, 11, 21]
    moments = (0.0, 12.9, 13.0, 24.9, 25.0)  # saves begin at 10 and at 22
    assert [saving.newest(saving.far, seconds) for seconds in moments] == [0, 0, 1, 1, 2]
    assert [saving.newest(Copies(3.0, 0.0, 2), seconds) for seconds in moments] == [0, 0, 0, 0, 2]


def test_a_lost_node_costs_the_work_since_the_newest_protected_checkpoint() -> None:
    job = Job(PAIRS)
    assert job.fail(25.0, [0]) == Event(25.0, 25.0, 20.0, PROTECTED, parity_lost=False)
    assert job.down_seconds == 5 + 1
    assert job.fail(3.0, [0]) == Event(3.0, 0.0, 0.0, PROTECTED, parity_lost=False), "no other one"
    assert job.fail(3.0, [2]) == Event(3.0, 0.0, 0.0, PROTECTED, parity_lost=False)
    assert job.fail(6.0 + 11.5, [1]) == Event(17.5, 11.5, -20.0, FAR, parity_lost=True)
    assert job.down_seconds == 5 + 3


def test_a_save_is_protected_anew_after_a_failure() -> None:
    job = Job(PAIRS)
    job.fail(25.0, [0])
    assert job.fail(6.0 + 12.0, [1]) == Event(18.0, 12.0, 10.0, PROTECTED, parity_lost=False)


def test_what_was_flushed_stays_when_parity_is_lost() -> None:
    job = Job(PAIRS)
    assert job.fail(125.0, [0]).kept_seconds == 120, "of which 100 are on the far tier"
    assert job.fail(1.0, [1]) == Event(1.0, 0.0, -20.0, FAR, parity_lost=True)
    assert job.fail(9.0, [1]) == Event(9.0, 1.0, 0.0, FAR, parity_lost=False)


def test_the_newest_copy_is_taken_wherever_it_is() -> None:
    saving = Saving(10.0, 0.0, 5.0, Copies(1.0, 3.0), Copies(2.0, 1.0), (0, 0), 1)
    job = Job(saving)
    assert job.fail(21.5, [0]) == Event(21.5, 21.5, 20.0, FAR, parity_lost=False)
    assert job.fail(1.0, [1]) == Event(1.0, 0.0, 0.0, FAR, parity_lost=False), "it was too old"
    assert Job(saving).fail(22.0, [0]).source == PROTECTED, "both are there: the nearer one"


def test_nodes_at_once_make_fewer_failures() -> None:
    assert Failures(8, 80.0).mtbf_seconds == 10
    some = Failures(8, 80.0, together=4, together_share=0.5)
    assert some.mtbf_seconds == pytest.approx(25), "2.5 nodes each"
    sizes = {len(set(some.lost_nodes(random.Random(seed)))) for seed in range(50)}
    assert sizes == {1, 4}


def test_without_failures_only_saves_cost() -> None:
    saving = Saving(90.0, 10.0, 5.0, Copies(10.0, 1.0))
    share = lost_share(saving, Failures(1, 1e18), 1e6, random.Random(1))
    assert share == pytest.approx(0.1)


class Scripted(random.Random):
    """Failures at these distances."""

    def __init__(self, *gaps: float) -> None:
        super().__init__(1)
        self.gaps = list(gaps)

    def expovariate(self, lambd: float = 1.0) -> float:
        return self.gaps.pop(0)


def test_the_end_of_a_run_counts_what_is_trained_until_then() -> None:
    saving = Saving(10.0, 0.0, 5.0, Copies(1.0, 3.0))
    found = [lost_share(saving, Failures(1, 1.0), 60.0, Scripted(50.0, gap)) for gap in (99, 10)]
    assert found == pytest.approx([1 - (40 + 60 - 58) / 60] * 2), "40 s are left, 8 s it is down"
    assert lost_share(saving, Failures(1, 1.0), 55.0, Scripted(50, 9)) == pytest.approx(15 / 55)


def test_the_formula_is_that_of_daly() -> None:
    saving, mtbf = Saving(425.0, 3.1, 120.0, Copies(3.1, 0.8)), 4e4
    work = 425 / (math.exp(120.8 / mtbf) * math.expm1(428.1 / mtbf))
    assert expected_loss(saving, mtbf, saving.far) == pytest.approx(1 - work / mtbf)


@pytest.mark.parametrize(
    "saving",
    [
        Saving(425.0, 3.1, 120.0, Copies(3.1, 0.8)),
        Saving(20.0, 0.004, 120.0, Copies(17.0, 30.0)),
        Saving(1000.0, 900.0, 1500.0, Copies(900.0, 700.0)),
    ],
    ids=["rank0", "far-only", "harsh"],
)
def test_the_long_run_is_what_the_formula_says(saving: Saving, draw: random.Random) -> None:
    failures = Failures(64, 64 * 4e3)
    found = long_run(saving, failures, 20_000, draw)
    expected = expected_loss(saving, failures.mtbf_seconds, saving.far)
    assert 0 < found.error < 0.05 * expected
    assert found.errors_from(expected) < ERRORS_MAX


def test_a_run_has_the_share_of_the_long_run(draw: random.Random) -> None:
    saving, failures = Saving(425.0, 3.1, 120.0, Copies(3.1, 0.8)), Failures(64, 64 * 4e3)
    shares = [lost_share(saving, failures, 4e6, draw) for _ in range(40)]
    mean = sum(shares) / len(shares)
    error = math.sqrt(sum((one - mean) ** 2 for one in shares) / len(shares) / len(shares))
    expected = expected_loss(saving, failures.mtbf_seconds, saving.far)
    assert abs(mean - expected) < ERRORS_MAX * error + 0.001 * expected, "it ends in between"


def test_partners_are_lost_if_both_fail_before_the_next_protected_save(draw: random.Random) -> None:
    """With a window of down, interval and protection behind each failure, in which the next one
    comes with probability q: failures meet a whole pair (1 - q), half of one (b = q (1 - q + b /
    2)), or none. Half of those that meet half a pair take the other half.
    """
    saving = Saving(10.0, 0.0, 5.0, Copies(1.0, 1.0, 10**9), Copies(2.0, 1.0), (0, 0), 1)
    failures = Failures(2, 2 * 40.0)
    q = -math.expm1(-(6 + 12) / 40.0)
    found = parity_losses(saving, failures, 20_000, draw)
    assert found.errors_from(q * (1 - q) / (2 - q)) < ERRORS_MAX


def test_nodes_lost_at_once_have_the_odds_of_counting(draw: random.Random) -> None:
    """Four of 16 nodes spare all pairs in C(8, 4) 2^4 of C(16, 4) cases."""
    saving = Saving(
        10.0, 0.0, 5.0, Copies(1.0, 1.0, 10), Copies(2.0, 1.0), tuple(i % 8 for i in range(16)), 1
    )
    found = parity_losses(saving, Failures(16, 1e9, 4, 1.0), 20_000, draw)
    assert found.errors_from(1 - 70 * 16 / 1820) < ERRORS_MAX


def test_a_seed_gives_the_same_failures_again() -> None:
    first, again = (
        list(islice(events(PAIRS, Failures(4, 100.0), random.Random(3)), 50)) for _ in range(2)
    )
    assert first == again
    assert {event.source for event in first} == {FAR, PROTECTED}


@built
def test_strategies_save_at_their_best_interval_once_copies_are_ready() -> None:
    cases = {case.strategy: case for case in lost_time.cases(read_machine(), SHARDED, nodes=(256,))}
    found = {name: lost_time.saving(case, Assumed()) for name, case in cases.items()}
    assert list(found) == list(STRATEGIES)
    often = lost_time.saving(cases[FAR_ONLY], lost_time.OFTEN)
    assert often.far.ready_seconds <= often.interval_seconds < often.far.ready_seconds + 10
    restored = cases[FAR_ONLY].result.restore
    assert restored is not None
    assert often.far.restore_seconds == restored.flushed_seconds
    best = model.point(
        read_machine(), lost_time.workload(SHARDED, 256), lost_time.setup(RANK0, 256),
        Assumed.mtbf_per_node_seconds,
    )  # fmt: skip
    assert found[RANK0].interval_seconds == best.best.seconds
    assert found[FAR_ONLY].protected is None
    for strategy, reads in ((PARTNER, 1), (PARITY, 2)):
        near = found[strategy].protected
        assert near is not None
        assert near.ready_seconds > 32 + 32 * reads, "16 GB at 0.5 GB/s: written, and read so often"
        assert near.ready_seconds <= found[strategy].interval_seconds < near.ready_seconds + 10
        assert (found[strategy].far.every, found[strategy].parity) == (10, reads)


@built
def test_one_node_has_no_other_to_keep_its_copies() -> None:
    found = lost_time.cases(read_machine(), NT3, nodes=(1, 4))
    assert [(case.strategy, case.nodes) for case in found] == [
        (RANK0, 1), (RANK0, 4), (FAR_ONLY, 1), (FAR_ONLY, 4), (PARTNER, 4), (PARITY, 4),
    ]  # fmt: skip


@built
def test_draws_agree_with_formula_and_odds_on_the_simulated_durations() -> None:
    trials = Trials(seed=random.SystemRandom().randrange(1 << 32), runs=20, failures=5_000)
    print(trials)
    for case in lost_time.cases(read_machine(), SHARDED, nodes=(16,)):
        point = lost_time.point(case, Assumed(), trials)
        assert len(point.shares) == 20
        assert point.quantile(0.05) <= point.quantile(0.95)
        if case.strategy in (RANK0, FAR_ONLY):
            assert point.expected is not None
            assert point.long.errors_from(point.expected) < ERRORS_MAX
        else:
            assert point.expected is None
            both = lost_time.together(case, trials, 4)
            assert 0.3 < both.expected < 0.6
            assert both.found.errors_from(both.expected) < ERRORS_MAX


@built
def test_the_command_writes_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    words = ["--seed", "1", "--nodes-most", "16", "--runs", "3", "--failures", "60"]
    assert node_failures.main([*words, "--markdown", str(page)]) == 0
    text = page.read_text()
    assert text.splitlines()[0].endswith("SIMULATED")
    for name in NAMES.values():
        assert text.count(f"| {name} | ") == 8, "of losses, intervals and durations"
    alone = "| restarts alone | 7.6e-05 | 0.0003 | 0.0012 | - | - | - | - |"
    assert text.count(alone) == 2, "of 120 s each, five years apart on a node"
    assert "--seed 1 --runs 3 --failures 60 --nodes-most 16`" in text


@built
def test_few_nodes_have_no_odds_of_several_at_once(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    words = ["--seed", "1", "--nodes-most", "4", "--runs", "3", "--failures", "60"]
    assert node_failures.main([*words, "--markdown", str(page)]) == 0
    assert "Several nodes at once" not in page.read_text()


def test_percents_have_two_digits_that_count() -> None:
    assert [percent(share) for share in (0.0, 0.00001234, 0.0156, 0.177, 1.0)] == [
        "0", "0.0012", "1.6", "17.7", "100",
    ]  # fmt: skip


def test_the_picture_is_drawn_from_the_figures() -> None:
    assert failures_picture.PICTURE.read_text() == failures_picture.picture()
    assert "SIMULATED, not measured" in failures_picture.picture()


def test_the_readme_tells_the_figures_of_the_page() -> None:
    told = (ROOT / "lab" / "simulation" / "README.md").read_text()
    for part in failures_picture.PARTS:
        for name in (*(NAMES[strategy] for strategy in STRATEGIES), RESTARTS):
            found = failures_picture.simulated(part, name)
            values = [f"{found[n]['value']:g}" if n in found else "-" for n in model.NODES]
            assert f"| {name} | {' | '.join(values)} |" in told, part
    odds = [
        quoted("node-failures", "Several nodes", f"{NAMES[one]}, by src/protect/loss_odds", column)
        for one in (PARTNER, PARITY) for column in ("16 nodes", "256 nodes")
    ]  # fmt: skip
    pairs, pairs_256, groups, groups_256 = (each["value"] for each in odds)
    sentence = f"in {pairs} % of the cases on 16 nodes and {pairs_256} % on 256; parity in "
    assert f"{sentence}{groups} % and {groups_256} %." in " ".join(told.split())
