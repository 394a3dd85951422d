"""The benchmarks of several ranks run to their end, and count what they say."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lab.tests.conftest import LONG

RANKS = ["1", "2", "4"] if LONG else ["1", "2"]


def smoke(module: str, place: Path, *more: str) -> Any:
    out = place / "result.json"
    command = [sys.executable, "-m", f"lab.experiments.ranks.{module}", "--smoke", *more]
    command += ["--json", str(out), "--directory", str(place)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert [each.name for each in place.iterdir()] == ["result.json"], "nothing is left behind"
    return json.loads(out.read_text())


def test_slices_read_about_what_is_wanted(tmp_path: Path) -> None:
    (result,) = smoke("slices", tmp_path)["results"]
    for count, slices in result["slices"].items():
        assert len(slices) == int(count)
        assert sum(one["wanted"] for one in slices) == result["bytes"]
        assert all(one["wanted"] <= one["read"] for one in slices)
        assert all(one["of_even_share"] == pytest.approx(1, rel=0.1) for one in slices)


def test_sharing_divides_the_bytes(tmp_path: Path) -> None:
    (result,) = smoke("sharing", tmp_path, "--ranks", *RANKS)["results"]
    assert list(result["ranks"]) == RANKS
    whole = sum(result["ranks"]["1"]["bytes"])
    for ranks, one in result["ranks"].items():
        assert len(one["bytes"]) == int(ranks)
        assert sum(one["bytes"]) == whole
        assert result["spread_bytes"][ranks] <= 1 << 20


def test_every_saver_saves_beside_a_training_of_two_ranks(tmp_path: Path) -> None:
    result = smoke("beside", tmp_path)
    assert len(result["rows"]) == 5
    for row in result["rows"]:
        assert len(row["stall_ms"]) == len(row["run_time"]) * result["steps"] // result["every"]
        assert all(seconds is not None for seconds in row["durable"]), row["saver"]
