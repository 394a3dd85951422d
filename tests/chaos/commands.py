"""The command-line program, one call after the other beside all else; each is judged."""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from examples.demo.program import find_program

from .children import DEADLINE_SECONDS, ViolationError
from .oracle import Oracle, is_gone
from .state import Point, digests_of_file

KILL_CHANCE = 0.1  # of a call that deletes, at a fail point
KILL_POINTS = (
    "remove.manifest_removed",
    "remove.manifest_synced",
    "remove.files_removed",
    "remove.files_synced",
    "remove.directory_removed",
    "abort.renamed",
)
FULL_WORDS = ("No space left", "no_space")


class Commands:
    """Draws commands, begins one when the last has ended, and reports results that must not be."""

    def __init__(
        self, run: Path, place: Path, oracle: Oracle, keep: int, draw: random.Random
    ) -> None:
        """Their output goes to `place`, which is never full; their exports go elsewhere."""
        self._run, self._oracle, self._draw = run, oracle, draw
        self._out = run.parent / "export.safetensors"
        self._output = place / "command.out"
        self._process: subprocess.Popen[bytes] | None = None
        self._words: tuple[str, ...] = ()
        self._began = 0.0
        self._spoiled: set[str] = set()  # whose manifest was there when it began
        self.disk_is_full = False  # at some time while it ran
        self.paused = False
        self.outcomes: Counter[str] = Counter()
        self._verbs: dict[tuple[str, ...], float] = {
            ("gc", "--keep-last", str(keep)): 4,
            ("verify",): 3,
            ("scrub", "--rate", "0"): 2,
            ("doctor", "--verify"): 2,
            ("doctor", "--delete-debris"): 2,
            ("ls",): 3,
            ("export", str(self._out), "--force"): 3,
        }

    @property
    def idle(self) -> bool:
        return self._process is None

    def ended(self) -> bool:
        """One has: judge it, once all that trainers said before that is heard."""
        if self._process is None or self._process.poll() is not None:
            return self._process is not None
        if time.monotonic() - self._began > DEADLINE_SECONDS:
            raise ViolationError(f"{' '.join(self._words)} hangs")
        return False

    def judge(self) -> None:
        """The one that has ended."""
        assert self._process is not None
        status, self._process = self._process.returncode, None
        self._judge(status, self._output.read_text(errors="replace"))
        self.disk_is_full = False

    def begin_any(self) -> None:
        """Begins a command, if none is running and none is forbidden."""
        if self._process is None and not self.paused:
            (words,) = self._draw.choices(list(self._verbs), list(self._verbs.values()))
            deletes = words[0] == "gc" or "--delete-debris" in words
            self.begin(words, dies=deletes and self._draw.random() < KILL_CHANCE)

    def begin(self, words: tuple[str, ...], *, dies: bool = False) -> None:
        run = f"{self._run}@latest" if words[0] == "export" else str(self._run)
        command = [find_program(), words[0], run, *words[1:], "--json"]
        point = f"{self._draw.choice(KILL_POINTS)}=kill@{self._draw.randrange(1, 4)}"
        environment = {**os.environ, "DEEPFREEZE_FAIL": point if dies else ""}
        self._words, self._began, self._spoiled = words, time.monotonic(), self._spoiled_now()
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _spoiled_now(self) -> set[str]:
        there = (each for each in self._oracle.spoiled if self._stands(each))
        return set(there)

    def _stands(self, directory: str) -> bool:
        return (self._run / directory / "manifest.json").exists()

    def _judge(self, status: int, text: str) -> None:
        call = " ".join(self._words[:1] + tuple(w for w in self._words[1:] if w[:2] == "--"))
        outcome = {0: "good", 1: "fault", -9: "killed"}.get(status, "refused")
        if self.disk_is_full and any(word in text for word in FULL_WORDS):
            outcome = "disk full"
        self.outcomes[f"{call}: {outcome}"] += 1
        if outcome in ("killed", "disk full"):
            return
        try:
            _JUDGES[self._words[0]](self, status, text)
        except (ValueError, KeyError) as error:
            raise self._violation(f"{error!r}", status, text) from error

    def _violation(self, what: str, status: int, text: str) -> ViolationError:
        return ViolationError(
            f"{' '.join(self._words)}: {what}; exit status {status}: {text[-3000:]}"
        )

    def _check_faulty(self, faulty: set[str], status: int, text: str) -> None:
        """Checks that faults are reported exactly for damaged checkpoints."""
        if strange := faulty - self._oracle.spoiled.keys():
            raise self._violation(f"finds faults in {strange}, which is whole", status, text)
        still = {each for each in self._spoiled if self._stands(each)}
        if missed := still - faulty:
            raise self._violation(f"finds no fault in {missed}", status, text)
        if status != (1 if faulty else 0):
            raise self._violation("another exit status was due", status, text)

    def _judge_verify(self, status: int, text: str) -> None:
        self._check_findings(json.loads(text), status, text)

    def _judge_scrub(self, status: int, text: str) -> None:
        (run,) = json.loads(text)["runs"]
        if run["errors"]:
            raise self._violation("has errors", status, text)
        self._check_findings(run, status, text)

    def _check_findings(self, found: dict[str, Any], status: int, text: str) -> None:
        if found["records"]:
            raise self._violation("finds faults in records", status, text)
        faulty = {each["directory"] for each in found["attempts"] if each["faults"]}
        self._check_faulty(faulty, status, text)

    def _judge_doctor(self, status: int, text: str) -> None:
        found = json.loads(text)
        places = {each["place"] for each in found["findings"] if each["weight"] == "fault"}
        if "--verify" in self._words:
            self._check_faulty({each.split("/")[0] for each in places}, status, text)
        elif status not in (0, 1) or (status == 1 and not self._oracle.spoiled):
            raise self._violation("failed", status, text)

    def _judge_gc(self, status: int, text: str) -> None:
        if status != 0:
            raise self._violation("failed", status, text)

    def _judge_ls(self, status: int, text: str) -> None:
        if status != 0:
            raise self._violation("failed", status, text)
        for each in json.loads(text)["checkpoints"]:
            if each["directory"] in self._oracle.spoiled:
                continue
            if each.get("fault"):
                raise self._violation(f"{each['directory']} is whole", status, text)
            if each["state"] == "committed":
                point = Point(int(each["tags"]["life"]), each["step"])
                if not self._oracle.was_begun(point):
                    raise self._violation(f"{point} was never begun", status, text)

    def _judge_export(self, status: int, text: str) -> None:
        """Nothing says which life's step it was: one of those at that step."""
        if status != 0:
            if not self._oracle.spoiled and not is_gone(text) and self._oracle.durable:
                raise self._violation("failed", status, text)
            return
        step = int(json.loads(text)["checkpoint"]["step"])
        found = digests_of_file(self._out)
        if not any(self._oracle.has_bytes(point, found) for point in self._oracle.at_step(step)):
            raise self._violation(f"wrote bytes that step {step} never had", status, text)


_JUDGES: dict[str, Callable[[Commands, int, str], None]] = {
    "verify": Commands._judge_verify,
    "scrub": Commands._judge_scrub,
    "doctor": Commands._judge_doctor,
    "gc": Commands._judge_gc,
    "ls": Commands._judge_ls,
    "export": Commands._judge_export,
}
