"""No flipped bit is loaded, and each is named.

The full proof: `python -m tests.e2e.detection --flips 2000`.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from .command import with_faults
from .detection import Result, prove, table

FLIPS = 400


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed={seed} (rerun with python -m tests.e2e.detection --seed {seed})")
    proved = prove(FLIPS, seed, Path(tmp_path_factory.mktemp("detection")))
    print(with_faults(table(proved), proved.problems))
    return proved


def test_no_flip_gives_wrong_values_or_a_wrong_name(result: Result) -> None:
    assert result.problems == []
    assert sum(row.flips for row in result.rows.values()) == FLIPS


def test_every_flip_in_a_file_of_the_newest_step_falls_back_one_step(result: Result) -> None:
    for kind in ("data", "header"):
        row = result.rows[kind]
        assert row.hit_newest > 0
        assert row.fell_back == row.hit_newest, kind


def test_verify_names_every_flip_in_data_and_headers(result: Result) -> None:
    for kind in ("data", "header"):
        assert result.rows[kind].named == result.rows[kind].flips, kind
