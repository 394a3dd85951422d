"""A fault on one tier costs nothing; on all tiers it costs the newest step, and is told.

The full proof: `python -m tests.e2e.tier_faults --faults 2000`.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import deepfreeze as df

from . import tier_faults
from .command import with_faults
from .tier_damage import Fault
from .tier_faults import ALL_SERIES, ON_ALL, ON_ONE, Result, prove, report_of

FAULTS = 50


def proved(faults: int, place: Path) -> Result:
    seed = random.SystemRandom().randrange(1 << 32)
    print(
        f"seed={seed} (rerun with python -m tests.e2e.tier_faults --faults {faults} --seed {seed})"
    )
    result = prove(faults, seed, place)
    print(with_faults(report_of(result), result.problems))
    return result


def test_a_fault_on_one_tier_is_healed_and_on_all_tiers_told(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(
        f"seed={seed} (rerun with python -m tests.e2e.tier_faults --faults {FAULTS} --seed {seed})"
    )
    result = prove(FAULTS, seed, tmp_path)
    print(with_faults(report_of(result), result.problems))
    assert result.problems == []
    for series in ALL_SERIES:
        tally = result.tallies[series.name]
        assert tally.trials == tally.whole == int(series.share * FAULTS)


def test_a_copy_that_is_not_healed_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(df.Checkpointer, "drain", lambda *_: None)
    monkeypatch.setattr(tier_faults, "opened", lambda first, *_: df.Checkpointer(first))
    assert proved(20, tmp_path).tallies[ON_ONE.name].whole == 0


def test_a_step_that_is_not_passed_over_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fault, "put_on", lambda *_: None)
    assert proved(20, tmp_path).tallies[ON_ALL.name].whole == 0
