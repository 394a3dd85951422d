"""The native program on the small runs of an id."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from deepfreeze.base import program
from deepfreeze.errors import make_error


def path() -> Path:
    """The program's path. CheckpointError if it is not found."""
    found = program.find()
    if found is None:
        raise make_error("not_found", program.NOT_FOUND)
    return found


def run(words: list[str]) -> subprocess.CompletedProcess[bytes]:
    """Runs the program; its output and exit code."""
    return subprocess.run([path(), *words], stdout=subprocess.PIPE, check=False)


def document(verb: str, words: list[str]) -> tuple[dict[str, Any], int]:
    """The program's --json document, and its exit code. CheckpointError if it reports an error."""
    done = subprocess.run([path(), verb, *words, "--json"], capture_output=True, check=False)
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError as cause:
        text = done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
        raise make_error("internal", f"{verb} {words[0]}: {text}") from cause
    if set(found) == {"format", "command", "error"}:
        raise make_error(found["error"]["code"], found["error"]["message"])
    return found, done.returncode
