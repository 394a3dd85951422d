"""Runs a program of an environment: a request as JSON in, an answer as JSON out."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.measure.case import ToolError
from lab.writers.menu import FRAMEWORKS, OWN, PEERS, ROOT, folder_of, python_of

SECONDS_MAX = 600.0
LAST_LINES = 3
FOLDERS = re.compile(r"/(?:[\w.+~-]+/)+")


def ask(
    python: Path,
    module: str,
    request: Mapping[str, Any],
    place: Path,
    *,
    seconds_max: float = SECONDS_MAX,
    variables: Mapping[str, str] | None = None,
) -> Any:
    """What `python -m module request.json answer.json` has answered.

    The program runs in a process group of its own, which ends with it. ToolError where it gave no
    answer or said {"error": …}; TimeoutError beyond `seconds_max`.
    """
    asked, answered = place / "request.json", place / "answer.json"
    asked.write_text(json.dumps(request))
    answered.unlink(missing_ok=True)
    said = run([str(python), "-m", module, str(asked), str(answered)], seconds_max, variables)
    if not answered.exists():
        raise ToolError(gist(f"{module}: the process ended without an answer: {said}"))
    answer = json.loads(answered.read_text())
    if isinstance(answer, dict) and "error" in answer:
        raise ToolError(gist(str(answer["error"])))
    return answer


def try_to_ask(*asked: Any, **options: Any) -> dict[str, Any]:
    """The answer, or {"error": …}."""
    try:
        answer: dict[str, Any] = ask(*asked, **options)
    except (ToolError, TimeoutError) as error:
        return {"error": str(error)}
    return answer


def gist(error: str) -> str:
    """Its first line and its last, between which tracebacks stand; without this machine's paths."""
    lines = FOLDERS.sub("", error).strip().splitlines() or [""]
    return lines[0] if len(lines) == 1 else f"{lines[0]} … {lines[-1].strip()}"


def run(command: list[str], seconds_max: float, variables: Mapping[str, str] | None = None) -> str:
    """Its last words on stderr. TimeoutError beyond `seconds_max`."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **(variables or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        _, errors = process.communicate(timeout=seconds_max)
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"took more than {seconds_max:g} s") from None
    finally:
        with suppress(ProcessLookupError):  # some savers leave processes behind
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return " ".join(errors.strip().splitlines()[-LAST_LINES:])


# The Python environments that writers need; made by the study itself, once.


__all__ = ["FRAMEWORKS", "OWN", "PEERS", "Environments", "environment_of", "python"]

python = python_of


def environment_of(framework: str) -> str:
    """The one in which its own writers run."""
    return OWN if framework == "pytorch" else FRAMEWORKS


@dataclass
class Environments:
    """Which of them are there; `reasons` says why one is not."""

    reasons: dict[str, str] = field(default_factory=dict)

    def make(self, names: Iterable[str]) -> None:
        """Installs missing packages; one that can't be installed has a reason then."""
        for name in sorted(set(names) - {OWN}):
            if _make(name) != 0:
                shown = folder_of(name).relative_to(ROOT)
                self.reasons[name] = f"{shown} could not be made (see above)"


def _make(name: str) -> int:
    """Status 0 if it is there, made now or earlier. Its output is shown."""
    program = ROOT / "lab" / "environment.py"
    command = [sys.executable, str(program), name]
    return subprocess.run(command, stdout=sys.stderr, check=False).returncode
