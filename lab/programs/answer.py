"""How a program of the study takes its request and gives its answer."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Work = Callable[[dict[str, Any]], Any]


def answer(work: Work, request: dict[str, Any]) -> Any:
    """What `work` gives, or the error that it raises."""
    try:
        return work(request)
    except Exception as error:  # told, never dropped
        return {"error": f"{type(error).__name__}: {error}"}


def carry_out(arguments: list[str], work: Work) -> int:
    asked, answered = map(Path, arguments)
    part = answered.with_suffix(".part")
    part.write_text(json.dumps(answer(work, json.loads(asked.read_text()))))
    part.rename(answered)  # half an answer would be none
    return 0
