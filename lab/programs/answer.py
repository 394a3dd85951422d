"""How a program of the study takes its request and gives its answer."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def carry_out(arguments: list[str], work: Callable[[dict[str, Any]], Any]) -> int:
    """Writes what `work` gives, or the error that it raises."""
    asked, answered = map(Path, arguments)
    request: dict[str, Any] = json.loads(asked.read_text())
    answer: Any
    try:
        answer = work(request)
    except Exception as error:  # told, never dropped
        answer = {"error": f"{type(error).__name__}: {error}"}
    part = answered.with_suffix(".part")
    part.write_text(json.dumps(answer))
    part.rename(answered)
    return 0
