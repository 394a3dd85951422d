"""The full proof is `python -m tests.e2e.torn_capture --trials 100`, also with --paranoid."""

import pytest

from .torn_capture import (
    FAIL_POINTS,
    PHASES,
    PROMISED,
    WRITERS,
    describe,
    faults,
    parse,
    run_phases,
)

TRIALS = 1
SEED = 4


@pytest.mark.parametrize("paranoid", [False, True])
def test_a_torn_capture_is_never_committed_and_a_whole_one_never_reported(paranoid: bool) -> None:
    options = parse(["--trials", str(TRIALS), "--seed", str(SEED)] + paranoid * ["--paranoid"])
    counts = run_phases(options, options.seed)
    assert not faults(counts, TRIALS, paranoid), describe(counts)


def test_what_only_paranoid_finds_is_among_the_writers() -> None:
    assert set(WRITERS) - set(PROMISED) == {"numpy_element"}
    assert set(FAIL_POINTS) == set(PHASES)
