"""Each recipe, as far as it runs without its scheduler."""

from __future__ import annotations

import configparser
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import deepfreeze as df
from deepfreeze.base import program
from examples.recipes.train import EVERY, TRY_AGAIN

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "examples" / "recipes"
SECONDS = 120.0  # for waits that must not hang
STEPS = "100"

# Runs the command that it is given, without the options that come first.
STAND_IN_SRUN = '#!/bin/bash\nwhile [[ $1 == --* ]]; do shift; done\nexec "$@"\n'
STAND_IN_SCONTROL = '#!/bin/bash\necho "scontrol $*"\n'


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """With the program on the PATH, an agent's directory of its own, and a scheduler's commands."""
    folder = tmp_path / "bin"
    folder.mkdir()
    found = program.find()
    assert found is not None
    (folder / "deepfreeze").symlink_to(found)
    for name, text in (("srun", STAND_IN_SRUN), ("scontrol", STAND_IN_SCONTROL)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    place = tmp_path / "agent"
    made = {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "DEEPFREEZE_AGENT_DIR": str(place),
        "TRAIN": f"{shlex.quote(sys.executable)} -m examples.recipes.train",
        "SLURM_JOB_ID": "7",
        "PAUSE": "0",
        "USER": "somebody",
        "RUN": str(tmp_path / "run"),
        "LOCAL": str(tmp_path / "run"),
        "FAR": str(tmp_path / "far" / "digits"),
        "DISK": str(tmp_path / "far"),
        "AGENT": str(place),
    }
    yield made
    ended = [str(found), "agent", "--drain", "--deadline", "0"]
    subprocess.run(ended, env=made, capture_output=True, check=False, timeout=SECONDS)


def call(script: str, environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(RECIPES / script), "--steps", STEPS, *words],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS,
    )  # fmt: skip


def newest(path: str) -> int:
    with df.Checkpointer(path, read_only=True) as ckpt:
        return ckpt.checkpoints()[0].step


def test_the_workstation_goes_on_until_it_is_done(environment: dict[str, str]) -> None:
    environment["DEEPFREEZE_FAIL"] = "commit.sealed=kill@5"  # each training dies at its fifth save
    done = call("workstation.sh", environment)
    assert done.returncode == 0, done.stderr
    assert "the training ended with 137, and starts again" in done.stdout
    # Saves that it had captured when it was killed were finished by the agent that it had started
    # itself, unless that one came to the fail point, too.
    assert done.stdout.count("goes on from step") >= 2
    assert "done: 100 steps" in done.stdout
    assert newest(environment["RUN"]) == newest(environment["FAR"]) == int(STEPS)


def test_the_laptop_brings_over_what_its_disk_lacks(environment: dict[str, str]) -> None:
    alone = call("laptop.sh", environment)
    assert alone.returncode == 0, alone.stderr
    assert "is not there" in alone.stdout
    Path(environment["DISK"]).mkdir()
    both = call("laptop.sh", environment, "--steps", str(int(STEPS) + EVERY))
    assert both.returncode == 0, both.stderr
    assert f"copied step {STEPS}" in both.stdout
    assert "committed" in both.stdout
    assert newest(environment["FAR"]) == int(STEPS) + EVERY


def test_slurm_is_told_in_time_and_the_job_requeued(
    environment: dict[str, str], tmp_path: Path
) -> None:
    command = [str(RECIPES / "slurm.sh"), "--steps", "1000000"]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as job:
        deadline = time.monotonic() + SECONDS
        while not list((tmp_path / "run").glob("step-*/manifest.json")):
            assert job.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        job.send_signal(signal.SIGUSR1)  # as Slurm does before the limit
        said, errors = job.communicate(timeout=SECONDS)
    assert job.returncode == TRY_AGAIN, errors
    assert "told to end after step" in said
    assert "scontrol requeue 7" in said
    reached = newest(environment["LOCAL"])
    assert newest(environment["FAR"]) == reached
    shutil.rmtree(environment["LOCAL"])  # the job begins again on another node
    again = call("slurm.sh", environment, "--steps", str(reached + EVERY))
    assert again.returncode == 0, again.stderr
    assert f"goes on from step {reached}" in again.stdout
    assert "requeue" not in again.stdout


def test_the_service_runs_and_ends_in_good_order(
    environment: dict[str, str], tmp_path: Path
) -> None:
    unit = configparser.ConfigParser()
    unit.read(RECIPES / "deepfreeze-agent.service")
    service = unit["Service"]
    assert service["Type"] == "notify"
    words = shlex.split(service["ExecStart"])
    assert int(words[words.index("--deadline") + 1]) < int(service["TimeoutStopSec"])
    with subprocess.Popen(words, env=environment) as agent:
        deadline = time.monotonic() + SECONDS
        while not (tmp_path / "agent" / "agent.sock").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        done = call("workstation.sh", environment)
        assert done.returncode == 0, done.stderr
        assert agent.wait(SECONDS) == 0  # the script has drained it


def test_both_containers_of_the_pod_run(environment: dict[str, str], tmp_path: Path) -> None:
    pod = json.loads((RECIPES / "kubernetes.json").read_text())["spec"]["template"]["spec"]
    (agent,), (training,) = pod["initContainers"], pod["containers"]
    places = {"/agent": "agent", "/run-local": "local", "/run-far": "far"}
    assert {mount["mountPath"] for mount in agent["volumeMounts"]} == places.keys()
    assert agent["volumeMounts"] == training["volumeMounts"]
    for name in places.values():
        (tmp_path / name).mkdir(mode=0o700, exist_ok=True)

    def command_of(container: dict[str, list[str]]) -> list[str]:
        words = container["command"]
        for path, name in places.items():
            words = [word.replace(path, str(tmp_path / name)) for word in words]
        return [sys.executable if word == "python3" else word for word in words]

    with subprocess.Popen(command_of(agent), env=environment) as sidecar:
        try:
            trained = subprocess.run(
                [*command_of(training), "--steps", STEPS],
                cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
                timeout=SECONDS,
            )  # fmt: skip
            assert trained.returncode == 0, trained.stderr
            assert "warning" not in trained.stderr
        finally:
            sidecar.terminate()  # as at the pod's end
        assert sidecar.wait(SECONDS) == 0
    assert newest(str(tmp_path / "far" / "digits")) == int(STEPS)
