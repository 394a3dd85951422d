"""The program faults_trainer: its output, and the contents of its run afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/release/tests/faults/faults_trainer"
SECONDS_MAX = 60.0  # for a handful of saves of 50 KB; beyond it, it hangs


@dataclass(frozen=True)
class Said:
    """Its lines: by the first word, the steps; and how it ended."""

    lines: tuple[str, ...]
    exit_status: int

    def steps(self, word: str) -> list[int]:
        words = [line.split() for line in self.lines]
        return [int(each[1]) for each in words if len(each) > 1 and each[0] == word]

    @property
    def ended_by_itself(self) -> bool:
        """It came to its end, or said why it could not begin; it did not crash."""
        last = self.lines[-1] if self.lines else ""
        return (self.exit_status, last.split(" ")[0]) in ((0, "closed"), (1, "refused"))

    @property
    def stall_seconds_max(self) -> float | None:
        """Its longest call of save(); None if it has not reported it yet."""
        milliseconds = self.steps("stall_milliseconds_max")
        return milliseconds[0] / 1000 if milliseconds else None

    @property
    def newest_durable(self) -> int:
        return max(self.steps("durable"), default=0)


def call(
    *arguments: str | Path,
    under: Sequence[str | Path] = (),
    environment: Mapping[str, str] | None = None,
    seconds_max: float = SECONDS_MAX,
) -> Said:
    """Runs it to its end; TimeoutExpired if it hangs: then it and its wrapper are killed."""
    with subprocess.Popen(
        [*under, PROGRAM, *arguments], env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            out, _ = process.communicate(timeout=seconds_max)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return Said(tuple(out.splitlines()), process.returncode)


def faults_of(run: Path, acknowledged: int, *, may_be_bad: bool = False) -> list[str]:
    """The promises that its run breaks; `acknowledged`: the newest step that was durable."""
    return faults_in(call("check", run), acknowledged, may_be_bad=may_be_bad)


def faults_in(checked: Said, acknowledged: int, *, may_be_bad: bool = False) -> list[str]:
    """The promises that are broken, by the reader's output."""
    faults = [line for line in checked.lines if line.startswith("wrong")]
    if not checked.ended_by_itself:
        faults.append(f"the reader ended with {checked.exit_status}")
    if not may_be_bad:
        faults += [line for line in checked.lines if line.startswith(("bad", "refused"))]
        newest = max(checked.steps("good"), default=0)
        if newest < acknowledged:
            faults.append(f"step {acknowledged} was durable, the newest is {newest}")
    return faults


class EndedError(Exception):
    """The program ended without the awaited output."""


class Running:
    """faults_trainer while it runs; killed at the end of `with`."""

    def __init__(
        self, *arguments: str | Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.process = subprocess.Popen(
            [PROGRAM, *arguments], env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self._lines: list[str] = []
        self._is_silent = False  # for good: it has ended
        self._said = threading.Condition()
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._said:
                self._lines.append(line.rstrip("\n"))
                self._said.notify_all()
        with self._said:
            self._is_silent = True
            self._said.notify_all()

    def said(self) -> Said:
        """All that it has said so far."""
        with self._said:
            return Said(tuple(self._lines), self.process.poll() or 0)

    def wait_for(self, word: str, count: int = 1) -> bool:
        """Until it has said so many lines with this first word, or has ended; whether it has."""
        with self._said:
            self._said.wait_for(lambda: self._is_silent or self._has_said(word, count), SECONDS_MAX)
            return self._has_said(word, count)

    def _has_said(self, word: str, count: int) -> bool:
        return sum(line.startswith(word) for line in self._lines) >= count

    def must_say(self, word: str, count: int = 1) -> None:
        """TimeoutExpired if it does not say the word, EndedError if it has ended without it."""
        if self.wait_for(word, count):
            return
        with self._said:
            if self._is_silent:
                raise EndedError(f"{count} {word!r} were awaited, its last: {self._lines[-3:]}")
        raise subprocess.TimeoutExpired(f"faults_trainer: {word}", SECONDS_MAX)

    def wait_for_end(self, seconds_max: float = SECONDS_MAX) -> None:
        """TimeoutExpired if it does not end."""
        self.process.wait(timeout=seconds_max)
        self._listener.join()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._listener.join()
