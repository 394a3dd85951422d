"""A few flips of each kind, and trials that must find a fault."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from . import faults, flips
from .fault_proxy import FaultProxy
from .flips import KINDS, SMALL, Disturbed, Found, prove
from .seaweed import Seaweed
from .stored_run import StoredRun, state_at, values_of

EACH = 2


@pytest.fixture
def proxy(run: StoredRun) -> FaultProxy:
    return run.proxy


def test_no_flip_is_given_back(store: Seaweed, proxy: FaultProxy, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed={seed}")
    found = prove(EACH * len(KINDS), seed, store, proxy, tmp_path / "flips")
    assert found.faults == []
    assert dict(found.flips) == dict.fromkeys(KINDS, EACH)
    assert found.fates["refused by the store"] == 2 * EACH
    assert found.fates["flush refused"] == EACH
    assert found.fates["step before restored"] == EACH
    assert found.fates["named by verify --fast"] == EACH


@pytest.mark.parametrize("kind", ["near file", "way in", "store"])
def test_a_flip_that_is_taken_is_a_fault(
    store: Seaweed,
    proxy: FaultProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    """The bytes are the good ones, so that everybody takes them."""
    for module in (flips, faults):
        monkeypatch.setattr(module, "flipped_bit", lambda body, _share: body)
    found = Found()
    it = Disturbed(store, proxy, tmp_path / "flips", SMALL)
    KINDS[kind](it, random.Random(1), found)
    assert len(found.faults) >= 1
    assert found.fates["refused by the store"] == 0


def test_a_state_that_was_never_saved_is_a_fault(
    store: Seaweed, proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = Disturbed(store, proxy, tmp_path / "flips", SMALL)
    other = values_of(state_at(2, SMALL))
    other["count"] = bytes([other["count"][0] ^ 1]) + other["count"][1:]
    monkeypatch.setattr(StoredRun, "restored", lambda *_: (2, other))
    with pytest.raises(AssertionError, match="never saved, as step 2"):
        it.disturbed_restore()
