"""Jobs of several ranks: resumed as they were, in any layout, whatever happens to one of them.

The full proofs: `python -m tests.ranks.resume_identity`, `reshard --all` and `rank_faults`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.fail_points import fail_points_of_ranks
from tests.support import warm_python

from .cases import CASES
from .rank_faults import POINTS

ROOT = Path(__file__).resolve().parents[2]


def proof(name: str, place: Path, *options: str) -> dict[str, Any]:
    """In a process of its own: it forks, and this one may have threads."""
    command = [sys.executable, "-m", f"tests.ranks.{name}", "--json", "--directory", str(place)]
    command += options
    done = warm_python.run(command, warm_python.RANKS, cwd=ROOT, capture_output=True)
    print(done.stderr)
    assert done.stdout, done.stderr
    figures = json.loads(done.stdout)
    assert isinstance(figures, dict)
    assert done.returncode == 0, figures
    return figures


@pytest.mark.parametrize(("kind", "world"), [("ddp", "2"), ("ddp", "4"), ("fsdp", "2")])
def test_killed_jobs_resume_to_the_undisturbed_end(tmp_path: Path, kind: str, world: str) -> None:
    figures = proof("resume_identity", tmp_path, "--runs", "1", "--kinds", kind, "--worlds", world)
    (job,) = figures["jobs"]
    assert (job["runs"], job["identical"], job["faults"]) == (1, 1, [])
    assert job["kills"] >= job["runs"]


def test_any_number_of_ranks_restores_any_layout(tmp_path: Path) -> None:
    figures = proof("reshard", tmp_path)
    assert figures["faults"] == []
    assert figures["saves"] == 30
    assert figures["restores"] == 90


def test_any_number_of_ranks_restores_from_three_places(tmp_path: Path) -> None:
    figures = proof("reshard", tmp_path, "--tiers")
    assert figures["faults"] == []
    assert figures["saves"] == 10
    assert figures["restores"] == 30


def test_a_rank_that_is_lost_costs_what_was_not_acknowledged(tmp_path: Path) -> None:
    figures = proof("rank_faults", tmp_path, "--disturbances", "4")
    assert figures["faults"] == []
    assert figures["killed"] + figures["stopped"] >= 4
    assert set(fail_points_of_ranks()) == {"await.published", "await.synced"} <= set(POINTS)
    assert figures["killed_at"].keys() >= set(fail_points_of_ranks())


@pytest.mark.parametrize("case", CASES)
def test_two_ranks(tmp_path: Path, case: str) -> None:
    assert proof("cases", tmp_path, case)["faults"] == []


IN_ONE_PROCESS = """
import sys
import deepfreeze as df
loaded = df.Checkpointer(sys.argv[1]).load(keys=["model.[!w]*"])  # NumPy has no bfloat16
assert "torch" not in sys.modules
print({name: getattr(value, "shape", value) for name, value in sorted(loaded["model"].items())})
"""


SAVE_BY_EIGHT = """
import sys
from pathlib import Path
from tests.ranks.reshard import Job, Matrix
job = Job(8, lambda rank, _, say: Matrix(rank, Path(sys.argv[1])).save("meshed", 8))
assert all(one.status == 0 for one in job.wait(120))
"""


def test_what_a_mesh_of_eight_saved_loads_without_torch(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SAVE_BY_EIGHT, str(tmp_path)]
    warm_python.run(command, warm_python.RANKS, cwd=ROOT, check=True)
    command = [sys.executable, "-c", IN_ONE_PROCESS, str(tmp_path / "near" / "meshed-8")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "'embedding': (301, 1024)" in done.stdout
    assert "'nothing': (0, 4)" in done.stdout
