"""A process that outlives the trainer, from Python."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import deepfreeze as df
from deepfreeze.base import program
from tests.support import warm_python

SECONDS = 60.0  # for waits that must not hang

# Saves steps 1 and 2, says when each is captured, and dies.
TRAINER = """
import os, signal, sys, torch
import deepfreeze as df
run, agent = sys.argv[1:3]
state = {"weights": torch.zeros(1000)}
ckpt = df.Checkpointer(run, agent=agent)
for step in (1, 2):
    state["weights"] += step
    handle = ckpt.save(step, state)
    handle.wait("captured", 60)
    print(step, flush=True)
    if step == 1:
        handle.wait("local", 60)
os.kill(os.getpid(), signal.SIGKILL)
"""


def deepfreeze(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    found = program.find()
    assert found is not None
    return subprocess.run(
        [found, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        env={**os.environ, **environment},
    )


def status_of(place: Path) -> dict[str, Any]:
    told = deepfreeze("agent", "--status", "--json", "--directory", str(place))
    assert told.returncode == 0, told.stderr
    found: dict[str, Any] = json.loads(told.stdout)
    return found


def end(place: Path) -> None:
    """Kills the agent, if one is there."""
    told = deepfreeze("agent", "--status", "--json", "--directory", str(place))
    if told.returncode == 0:
        os.kill(json.loads(told.stdout)["process"], signal.SIGKILL)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory for an agent that ends with the test."""
    at = tmp_path / "agent"
    yield at
    end(at)


@pytest.fixture
def agent(place: Path) -> Path:
    started = deepfreeze("agent", "--background", "--directory", str(place))
    assert started.returncode == 0, started.stderr
    return place


def train(run: Path, agent: Path, fail: str, program: str = TRAINER) -> list[int]:
    """The steps that it has called captured."""
    command = [sys.executable, "-c", program, str(run), str(agent)]
    environment = {**os.environ, "DEEPFREEZE_FAIL": fail}
    done = warm_python.run(command, env=environment, stdout=subprocess.PIPE, timeout=SECONDS)
    assert done.returncode == -signal.SIGKILL
    return [int(line) for line in done.stdout.split()]


def restored(run: Path, agent: Path | None) -> tuple[int, float]:
    state = {"weights": torch.zeros(1000)}
    with df.Checkpointer(run, agent=agent) as ckpt:
        found = ckpt.restore(state)
        assert found is not None
        return found, float(state["weights"][-1])


def steps_of(run: Path) -> list[int]:
    with df.Checkpointer(run, read_only=True) as ckpt:
        return [info.step for info in ckpt.checkpoints()]


@pytest.mark.parametrize(
    "fail",
    [
        "commit.directory_made=sleep:60000@2",
        "part.created=sleep:60000@2",
        "handover.captured=kill@2",
        "commit.sealed=kill@2",
        "commit.parts_checked=kill@2",
    ],
)
def test_a_captured_save_outlives_its_trainer(tmp_path: Path, agent: Path, fail: str) -> None:
    train(tmp_path / "run", agent, fail)
    assert restored(tmp_path / "run", agent) == (2, 3.0)


@pytest.mark.parametrize("seconds", [0.0, 0.5])  # by then it is taken, or not
def test_an_agent_has_the_memory_that_was_taken_before_the_save(
    tmp_path: Path, agent: Path, seconds: float
) -> None:
    attached = f"""
import time
ckpt.attach(torch.optim.SGD([torch.nn.Parameter(state["weights"])]))
time.sleep({seconds})
for step"""
    trainer = TRAINER.replace("\nfor step", attached)
    train(tmp_path / "run", agent, "handover.captured=kill@2", trainer)
    assert restored(tmp_path / "run", agent) == (2, 3.0)


@pytest.mark.parametrize(
    "point", ["handover.written", "handover.planned", "handover.checksums_written"]
)
def test_a_save_that_is_not_captured_does_not(tmp_path: Path, agent: Path, point: str) -> None:
    assert train(tmp_path / "run", agent, f"{point}=kill@2") == [1]  # nor was it said to be
    assert restored(tmp_path / "run", agent) == (1, 1.0)


def test_a_save_that_has_failed_is_not_finished(tmp_path: Path, agent: Path) -> None:
    """All of it is captured, and its failure has been told: nobody may commit it after that."""
    told = TRAINER.replace("os.kill", "assert handle.durable.exception(60)\nos.kill")
    assert train(tmp_path / "run", agent, "part.data_synced=error:EIO@2", told) == [1, 2]
    assert restored(tmp_path / "run", agent) == (1, 1.0)


def test_a_checkpoint_that_was_deleted_does_not_come_back(tmp_path: Path, agent: Path) -> None:
    """Its save was over."""
    gone = TRAINER.replace("    if step == 1:", "    if True:").replace(
        "os.kill", "import shutil\nshutil.rmtree(handle.directory())\nos.kill"
    )
    gone = gone.replace("handle.directory()", "ckpt.checkpoints()[0].path")
    assert train(tmp_path / "run", agent, "", gone) == [1, 2]
    assert restored(tmp_path / "run", agent) == (1, 1.0)


def test_a_save_that_is_sealed_needs_its_memory_no_more(tmp_path: Path, agent: Path) -> None:
    """The next save, of a larger state, has taken it, and is not captured yet."""
    grows = TRAINER.replace("os.kill", "ckpt.save(3, {'weights': torch.zeros(4_000_000)})\nos.kill")
    assert train(tmp_path / "run", agent, "commit.parts_checked=sleep:60000@2", grows) == [1, 2]
    assert restored(tmp_path / "run", agent) == (2, 3.0)


def test_a_new_agent_gets_the_memory_that_the_old_one_had(tmp_path: Path, agent: Path) -> None:
    """The trainer starts it before its second save."""
    old = status_of(agent)["process"]
    ended = f"""(1, 2):
    if step == 2:
        import subprocess
        os.kill({old}, signal.SIGKILL)
        asks = ["{program.find()}", "agent", "--status", "--directory", agent]
        while subprocess.run(asks, capture_output=True).returncode == 0:
            pass  # a save that begins before its death can be seen relies on it"""
    again = TRAINER.replace("(1, 2):", ended)
    assert train(tmp_path / "run", agent, "part.created=sleep:60000@2", again) == [1, 2]
    assert restored(tmp_path / "run", agent) == (2, 3.0)
    assert status_of(agent)["process"] != old


def test_a_torn_save_is_never_called_captured(tmp_path: Path, agent: Path) -> None:
    """Although its tear is found before it has been described to the agent."""
    torn = """
import os, signal, sys, torch
import deepfreeze as df
run, agent = sys.argv[1:3]
weights = torch.nn.Parameter(torch.zeros(100_000))  # large enough to be copied later
optimizer = torch.optim.SGD([weights], lr=1.0)
ckpt = df.Checkpointer(run, agent=agent, profile="latency")
ckpt.attach(optimizer)
handle = ckpt.save(1, {"weights": weights})
with torch.no_grad():
    weights.data += 1
try:
    handle.wait("captured", 60)
    print(1, flush=True)
except df.TornCaptureError:
    pass
else:
    handle.wait("local", 60)
os.kill(os.getpid(), signal.SIGKILL)
"""
    points = "capture.background=sleep:300;handover.written=sleep:1000"
    assert train(tmp_path / "run", agent, points, torn) == []


def test_without_an_agent_a_captured_save_is_lost(tmp_path: Path, agent: Path) -> None:
    """The control: it is the agent that finishes it."""
    end(agent)
    command = [sys.executable, "-c", TRAINER.replace("agent=agent", "agent=None")]
    environment = {**os.environ, "DEEPFREEZE_FAIL": "part.created=sleep:60000@2"}
    warm_python.run([*command, str(tmp_path / "run"), ""], env=environment, timeout=SECONDS)
    assert restored(tmp_path / "run", None) == (1, 1.0)


def test_a_checkpointer_starts_an_agent_that_serves_the_next_one(
    tmp_path: Path, place: Path
) -> None:
    with df.Checkpointer(tmp_path / "run", agent=place) as first:
        told = status_of(place)
        assert [client["state"] for client in told["clients"]] == ["training"]
        with df.Checkpointer(tmp_path / "other", agent=place):
            again = status_of(place)
            assert again["process"] == told["process"] != os.getpid()
            assert {Path(client["run"]).name for client in again["clients"]} == {"run", "other"}
        handle = first.save(1, {"weights": torch.ones(3)})
        assert handle is not None
        assert handle.wait("durable", SECONDS) is None


def test_training_goes_on_without_an_agent_and_with_the_next_one(
    tmp_path: Path, agent: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    state = {"weights": torch.ones(3)}
    with df.Checkpointer(tmp_path / "run", agent=agent) as ckpt:
        before = status_of(agent)["process"]
        end(agent)
        for step in (1, 2):
            handle = ckpt.save(step, state)
            assert handle is not None
            handle.wait("durable", SECONDS)
        assert status_of(agent)["process"] != before  # the second save has started another
    assert capfd.readouterr().err.count("warning") == 0


def test_a_directory_that_others_may_enter_is_not_used(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "open"
    place.mkdir(mode=0o755)
    with df.Checkpointer(tmp_path / "run", agent=place) as ckpt:
        handle = ckpt.save(1, {"weights": torch.ones(3)})
        assert handle is not None
        handle.wait("durable", SECONDS)
    told = capfd.readouterr().err
    assert told.count("warning: no agent") == 1
    assert "not a directory of this user alone" in told


def test_the_end_of_a_program_does_not_wait_for_its_tiers(tmp_path: Path, agent: Path) -> None:
    run, far = tmp_path / "run", tmp_path / "far"
    ckpt = df.Checkpointer(run, tiers=[df.tier(far, rate=1)], agent=agent)  # it never arrives
    handle = ckpt.save(1, {"weights": torch.ones(3)})
    assert handle is not None
    handle.wait("local", SECONDS)
    ckpt.close()
    with pytest.raises(df.CheckpointError, match="the agent goes on with it"):
        handle.wait("durable", SECONDS)
    assert [client["state"] for client in status_of(agent)["clients"]] == ["flushing"]
    df.Checkpointer(run, tiers=[df.tier(far)], agent=agent).close()  # the rate is that of the last
    told = deepfreeze("agent", "--drain", "--deadline", "60", "--directory", str(agent))
    assert (told.returncode, told.stderr) == (0, "")
    assert steps_of(far) == [1]


def test_a_terminated_agent_finishes_saves_and_ends(tmp_path: Path, agent: Path) -> None:
    train(tmp_path / "run", agent, "part.created=sleep:60000@2")
    os.kill(status_of(agent)["process"], signal.SIGTERM)
    deadline = time.monotonic() + SECONDS
    while deepfreeze("agent", "--status", "--directory", str(agent)).returncode == 0:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert steps_of(tmp_path / "run") == [2, 1]


def test_without_an_agent_the_verb_says_so(tmp_path: Path) -> None:
    for word in ("--status", "--drain"):
        told = deepfreeze("agent", word, "--directory", str(tmp_path / "none"))
        assert told.returncode == 3
        assert "no agent is at work there" in told.stderr


def test_systemd_is_told_when_the_agent_is_ready(tmp_path: Path, place: Path) -> None:
    heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    heard.settimeout(SECONDS)
    heard.bind(str(tmp_path / "notify"))
    found = program.find()
    assert found is not None
    with subprocess.Popen(
        [found, "agent", "--directory", str(place)],
        env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")},
        stderr=subprocess.PIPE,
    ) as process:
        assert heard.recv(100) == b"READY=1"
        status_of(place)
        process.terminate()
        assert heard.recv(100) == b"STOPPING=1"
        assert process.wait(SECONDS) == 0
    heard.close()


def test_a_second_agent_is_refused_by_name(agent: Path) -> None:
    told = deepfreeze("agent", "--directory", str(agent))
    assert told.returncode == 3
    assert f"{agent}: another agent is at work there" in told.stderr
    again = deepfreeze("agent", "--background", "--directory", str(agent))
    assert again.returncode == 0  # one is there
