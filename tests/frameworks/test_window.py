"""lab.experiments.frameworks counts correctly, in each framework; no speed is judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("orbax", reason="of build/frameworks-venv")

from lab.tests.conftest import LONG, one_thread  # noqa: F401 (a fixture that is used by itself)

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 2 if LONG else 1


@pytest.mark.parametrize("framework", ["chainer", "jax", "keras"])
def test_every_save_of_every_saver_is_committed(framework: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lab.experiments.frameworks", framework, "--smoke"]
    command += ["--every", "2", "--rounds", str(ROUNDS)]
    command += ["--directory", str(tmp_path), "--json", str(tmp_path / "all.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (experiment,) = json.loads((tmp_path / "all.json").read_text())["experiments"]
    none, *rows = experiment["rows"]
    assert none["saver"] == "none"
    assert len(rows) >= 4
    for row in rows:
        assert row["status"] == "ok", row
        assert row["saves_committed"] == row["saves_requested"] == 2 * ROUNDS
        assert row["file_bytes"]["median"] > 0.9 * (experiment["state_bytes"] or 1)
