"""`deepfreeze try`: the first thing that a newcomer runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import deepfreeze as df
from deepfreeze.errors import CheckpointError
from deepfreeze.trying import command, lives
from deepfreeze.trying.lives import Life, live
from deepfreeze.trying.training import Training


def run_try(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "deepfreeze", "try", *words],
        capture_output=True, text=True, check=False, cwd=cwd, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_a_killed_training_goes_on_and_ends_the_same(tmp_path: Path) -> None:
    done = run_try("--steps", "400", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["run"] == str(tmp_path / "deepfreeze-try")
    assert told["same"]
    assert 100 <= told["killed_at"] <= 300
    assert told["resumed_from"] > 0
    assert [one.step for one in df.checkpoints(told["run"])][-1] == 400


def test_a_directory_with_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    done = run_try(str(tmp_path), "--json", cwd=tmp_path)
    assert done.returncode == 2
    assert f"{tmp_path} is not an empty directory" in done.stderr
    told = json.loads(done.stdout)
    assert (told["command"], told["error"]["code"]) == ("try", "invalid_argument")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_too_few_steps_are_refused(tmp_path: Path) -> None:
    done = run_try("--steps", "9", cwd=tmp_path)
    assert done.returncode == 2
    assert "10 steps at least" in done.stderr


def test_without_torch_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(CheckpointError, match="pip install torch"):
        command.check(tmp_path)


@pytest.mark.parametrize(
    ("digests", "code", "words"),
    [(["", "one", "one"], 0, "bit for bit"), (["", "one", "another"], 1, "It DIFFERS")],
)
def test_the_end_of_its_story(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    digests: list[str],
    code: int,
    words: str,
) -> None:
    lives_of = iter(digests)
    monkeypatch.setattr(command, "live", lambda *_: Life(3, 5, 0.5, next(lives_of)))
    parser = command.argparse.ArgumentParser()
    command.add_to(parser.add_subparsers())
    assert command.main(parser.parse_args(["try", str(tmp_path), "--seed", "3"])) == code
    told = capfd.readouterr().out
    assert "Killed with SIGKILL once it told of step 5, loss 0.5000." in told
    assert "A new process restored step 3" in told
    assert words in told
    assert f"$ deepfreeze ls {tmp_path}" in told
    assert "\033" not in told, "nobody looks at a terminal"


def test_the_digest_sees_each_part_of_the_state() -> None:
    def trained(seed: int, steps: int) -> Training:
        training = Training(seed)
        for _ in range(steps):
            training.step()
        return training

    known = {trained(1, 3).digest(), trained(2, 3).digest(), trained(1, 4).digest()}
    other_generator = trained(1, 3)
    torch.rand(1)
    known.add(other_generator.digest())
    other_moment = trained(1, 3)
    next(iter(other_moment.optimizer.state.values()))["exp_avg_sq"][0, 0] += 1.0
    known.add(other_moment.digest())
    assert len(known) == 5
    assert trained(1, 3).digest() in known


def test_a_training_that_fails_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointError, match=r"status 1: .*file"):
        live(12, 1, tmp_path / "file", lambda *_: None)


def test_one_that_ends_before_it_is_killed_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lives, "_PROGRAM", "platform")
    monkeypatch.setattr(lives, "_events", lambda process: iter(()) if process.wait() == 0 else None)
    with pytest.raises(CheckpointError, match="ended with status 0"):
        live(12, 1, None, lambda *_: None, 5)
