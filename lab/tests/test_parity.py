"""The cost of parity over nodes: one small job for real, and the figures of made-up ones."""

import random
from pathlib import Path

import pytest

from lab.experiments import parity
from lab.experiments.parity import Job, Rebuild, Save, Training


def test_a_job_protects_its_saves_and_a_rebuild_calculates_half_of_the_files(
    tmp_path: Path,
) -> None:
    options = parity.parse(["--megabytes", "1", "--saves", "2", "--seed", "7"])
    job = parity.run_job(options, "df.parity(2, 2)", tmp_path)
    assert len(job.saves) == parity.NODES * 2
    assert all(save.protected_seconds > 0 and save.cpu_seconds > 0 for save in job.saves)
    rebuilt = parity.rebuild(tmp_path)
    assert rebuilt.bytes > len(parity.LOST) * 1_000_000
    assert rebuilt.seconds > 0
    assert rebuilt.copy_seconds > 0
    written = sum(path.stat().st_size for path in (tmp_path / "whole").rglob("*.safetensors"))
    copied = sum(path.stat().st_size for path in tmp_path.glob("copy-*"))
    assert copied == pytest.approx(written, rel=0.2)  # parity fills whole blocks


def test_a_job_that_fails_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "node1").write_text("no directory")
    options = parity.parse(["--megabytes", "1", "--saves", "1", "--seed", "7"])
    with pytest.raises(RuntimeError, match="a job with no parity failed"):
        parity.run_job(options, "no parity", tmp_path)
    assert "node1" in capfd.readouterr().err


def test_the_time_of_a_plain_save_is_no_cost_of_parity() -> None:
    jobs = [Job(name, [Save(0.2, 0.5, 3.0), Save(0.2, 0.5, 3.0)]) for name in parity.SCHEMES]
    jobs[0] = Job("no parity", [Save(0.2, 0.0, 1.0), Save(0.2, 0.0, 1.0)])
    told = parity.report(
        jobs,
        [Rebuild(2_000_000_000, 4.0, 3.0)],
        [Training(1.5, 1.1, 2.0), Training(1.0, 1.3, 3.0)],
        megabytes=500,
    )
    assert "no parity" not in told
    assert told["df.partner()"]["cpu_seconds_per_gigabyte"] == "4.00 [4.00, 4.00]"
    assert told["df.partner()"]["gigabytes_per_second"] == "1.00 [1.00, 1.00]"
    assert told["rebuild"]["gigabytes_per_second"] == "0.50 [0.50, 0.50]"
    assert told["rebuild"]["rate_over_copy"] == "0.75 [0.75, 0.75]"
    beside = told["training beside a partner"]
    assert beside == {
        "run_time_ratio": "1.25 [1.00, 1.50]",
        "thread_time_ratio": "1.20 [1.10, 1.30]",
        "save_interval_seconds": "2.50 [2.00, 3.00]",
    }


def test_a_training_is_measured_with_and_without_a_partner(tmp_path: Path) -> None:
    words = ["--megabytes", "1", "--saves", "1", "--steps", "2", "--seed", "7"]
    options = parity.parse([*words, "--directory", str(tmp_path)])
    found = parity.training(options, random.Random(7))
    assert found.ratio > 0
    assert found.save_interval_seconds > 0
    assert not list(tmp_path.iterdir())
