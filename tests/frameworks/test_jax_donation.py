"""Training that donates the arrays of a save which is still being copied."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax")

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("more", [[], ["--replicated"]])
def test_no_snapshot_of_donated_arrays_is_torn(more: list[str]) -> None:
    found = donation("--snapshots", "200", *more)
    assert (found["checkpoints"], found["torn"], found["wrong"]) == (200, 0, 0)
    assert found["behind"] > 0
    assert found["held"] > 0


def test_after_a_fence_nothing_is_held() -> None:
    """A call that arrays are donated to writes into their memory, as if there were no save."""
    found = donation("--snapshots", "50", "--fence")
    assert (found["checkpoints"], found["wrong"], found["held"]) == (50, 0, 0)


def test_a_bare_address_is_torn() -> None:
    """The negative control of the test above."""
    assert donation("--snapshots", "20", "--bare")["torn"] > 0


def donation(*arguments: str) -> dict[str, int]:
    command = [sys.executable, "-m", "tests.frameworks.jax_donation", "--json", *arguments]
    done = subprocess.run(command, cwd=ROOT, timeout=300, stdout=subprocess.PIPE, check=False)
    found: dict[str, int] = json.loads(done.stdout)
    return found
