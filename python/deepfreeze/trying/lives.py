"""Processes that train: one is killed, one goes on, one is not disturbed."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepfreeze.errors import CheckpointError

_PROGRAM = "deepfreeze.trying.training"

See = Callable[[int, float], None]  # of each step: its number, its loss


@dataclass(frozen=True)
class Life:
    """One process, from its start to its end."""

    start: int  # the step that it has restored; 0: none
    last: int  # the last step that it told of
    loss: float
    digest: str  # of its state at the end; "": it was killed


def live(steps: int, seed: int, run: Path | None, see: See, kill_at: int | None = None) -> Life:
    """Trains up to `steps`; `kill_at`: SIGKILL once it tells of this step.

    CheckpointError: the process failed by itself.
    """
    command = [sys.executable, "-P", "-m", _PROGRAM, str(steps), str(seed)]
    with tempfile.TemporaryFile() as errors:
        with subprocess.Popen(
            [*command, *([] if run is None else [str(run)])],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
        ) as process:  # fmt: skip
            try:
                life = _watch(process, see, kill_at)
            finally:
                process.kill()
        if life is not None and (kill_at is not None or life.digest):
            return life
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip().splitlines()[-1:]
    status = process.returncode
    raise CheckpointError(": ".join([f"the training ended with status {status}", *said]))


def _watch(process: subprocess.Popen[bytes], see: See, kill_at: int | None) -> Life | None:
    """None: it ended before its first step, or before the one at which it is killed."""
    start, last, loss, digest = 0, 0, 0.0, ""
    for event in _events(process):
        if event["event"] == "started":
            start = event["step"]
        elif event["event"] == "ended":
            digest = event["digest"]
        else:
            last, loss = event["step"], event["loss"]
            see(last, loss)
            if last == kill_at:
                return Life(start, last, loss, "")
    return Life(start, last, loss, digest) if kill_at is None and last else None


def _events(process: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)
