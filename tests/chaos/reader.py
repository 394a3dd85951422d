"""A process that loads the newest checkpoint again and again, all its life.

`python -m tests.chaos.reader RUN` obeys each line of its input and answers with a line.
It claims nothing: restore() would take the run over from its trainer.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from tests.e2e.sample import EXACT_MALLOC, Sample, take_sample

from .children import DEADLINE_SECONDS, Event, ViolationError, is_readable
from .state import Point

LEAK_BYTES = 16 << 10


class Reader:
    """The supervisor's end of it: one question at a time."""

    def __init__(self, run: Path, number: int, log: int, *, leaks: bool) -> None:
        command = [sys.executable, "-m", "tests.chaos.reader", str(run)]
        environment = {**os.environ, **EXACT_MALLOC, "DEEPFREEZE_FAIL": ""}
        self.process = subprocess.Popen(
            [*command, "leak"] if leaks else command,
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
        self.name = f"reader {number}"
        self.asked = ""
        self.loads = 0
        self.floor: Point | None = None  # when it was asked for its load
        self.sample_due = False
        self.curve: list[Sample] = []
        self._since = 0.0

    def ask(self, word: str) -> None:
        self.asked, self._since = word, time.monotonic()
        _stream(self.process.stdin).write(word + "\n")
        _stream(self.process.stdin).flush()

    def answer(self) -> Event | None:
        """None while there is none yet."""
        if not self.asked:
            return None
        if not is_readable(_stream(self.process.stdout)):
            if time.monotonic() - self._since > DEADLINE_SECONDS:
                raise ViolationError(f"{self.name} hangs: no answer to {self.asked}")
            return None
        line = _stream(self.process.stdout).readline()
        if not line:
            raise ViolationError(f"{self.name} died: {self.process.wait()}")
        self.asked = ""
        answer: Event = json.loads(line)
        return answer

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):
                _stream(stream).close()


def sample_of(answer: Event) -> Sample:
    return Sample(**answer["sample"])


def _stream(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def main(arguments: list[str]) -> int:
    import deepfreeze as df

    logging.getLogger("deepfreeze").setLevel(logging.ERROR)
    run, leaks = arguments[0], arguments[1:] == ["leak"]
    leaked: list[bytes] = []
    ckpt = df.Checkpointer(run)
    loads = 0
    for line in sys.stdin:
        word = line.strip()
        if word == "sample":
            answer = {"kind": "sample", "sample": asdict(take_sample(loads))}
        elif word == "open":
            with df.Checkpointer(run) as other:
                answer = load(other)
        else:
            answer = load(ckpt)
        loads += word != "sample"
        if leaks:
            leaked.append(bytes(LEAK_BYTES))
        print(json.dumps(answer), flush=True)
    return 0


def load(ckpt: Any) -> Event:
    """The newest, by its point and its bytes."""
    import deepfreeze as df

    from .state import digests_of_tree

    try:
        tree = ckpt.load()
    except df.CheckpointError as error:
        return {"kind": "refused", "code": error.code, "message": str(error)}
    at = tree["at"]
    return {"kind": "loaded", "point": [at["life"], at["step"]], "digests": digests_of_tree(tree)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
