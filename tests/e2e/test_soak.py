"""A hundred saves, torn and refused ones among them, leave nothing behind."""

from __future__ import annotations

import json
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.support import warm_python

from .sample import Sample
from .soak import MODES, Soak

ROOT = Path(__file__).resolve().parents[2]
SAVES = {"window": 100, "ring": 24}


def soak_of(mode: str, directory: Path, *more: str) -> tuple[dict[str, Any], list[str]]:
    """The figures of one mode, and the faults."""
    command = [sys.executable, "-m", "tests.e2e.soak", "--json", "--mode", mode, *more]
    command += ["--saves", str(SAVES[mode]), "--directory", str(directory)]
    done = warm_python.run(command, cwd=ROOT, capture_output=True)
    print(done.stderr)
    assert done.stdout, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    (soak,) = result["modes"]
    return soak, result["faults"]


@pytest.mark.parametrize("mode", MODES)
def test_many_saves_leave_nothing_behind(mode: str, tmp_path: Path) -> None:
    """The bounds of growth are those of ten thousand."""
    soak, faults = soak_of(mode, tmp_path)
    assert faults == []
    outcomes = soak["outcomes"]
    assert sum(outcomes.values()) == SAVES[mode]
    # The failing write may hit a save that was torn before: that save reports being torn.
    assert {"durable", "torn", "refused"} <= outcomes.keys()


@pytest.mark.parametrize("leak", ["bytes", "native"])
def test_what_each_save_leaves_behind_is_found(leak: str, tmp_path: Path) -> None:
    """4 KiB, or one handle of the engine."""
    soak, faults = soak_of("window", tmp_path, "--leak", leak)
    heap = [sample["heap_bytes"] for sample in soak["curve"]]
    assert [fault.split(" grew")[0] for fault in faults] == ["window: heap_bytes"], heap


def heap_faults(heap: list[int]) -> list[str]:
    curve = [Sample(4 * i, bytes_, 0, 0, 0, 0) for i, bytes_ in enumerate(heap)]
    return Soak("window", 100, guarded_bytes=1, fenced=1, curve=curve, restored="equal").faults()


@pytest.mark.parametrize("first", [-32_000, 32_000])
def test_jumps_of_the_heap_neither_hide_a_leak_nor_pass_for_one(first: int) -> None:
    """By 32 KB, up and down, between any two samples; the second one may never come."""
    for where, back in combinations(range(27), 2):
        for leak, is_found in ((0, False), (1_200, True)):
            heap = [leak * i + first * (where <= i < back) for i in range(26)]
            assert bool(heap_faults(heap)) == is_found, (where, back, leak)
