"""Runs a program of an environment: a request as JSON in, an answer as JSON out."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.measure.alone import end_group, gist
from lab.measure.case import ToolError
from lab.writers.menu import ROOT

SECONDS_MAX = 600.0
LAST_LINES = 3


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
        raise ToolError(gist(f"{module} ended without an answer: {said}"))
    answer = json.loads(answered.read_text())
    if isinstance(answer, dict) and "error" in answer:
        raise ToolError(gist(str(answer["error"])))
    return answer


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
        end_group(process)
    return " ".join(errors.strip().splitlines()[-LAST_LINES:])
