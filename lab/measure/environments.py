"""The Python environments that writers need; made by the study itself, once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field

from lab.writers.menu import FRAMEWORKS, OWN, PEERS, ROOT, folder_of, python_of

__all__ = ["FRAMEWORKS", "OWN", "PEERS", "Environments", "python"]

python = python_of


@dataclass
class Environments:
    """Which of them are there; `reasons` says why one is not."""

    reasons: dict[str, str] = field(default_factory=dict)

    def make(self, names: Iterable[str]) -> None:
        """What is missing is installed; what can't be has a reason then."""
        for name in sorted(set(names) - {OWN}):
            if _make(name) != 0:
                shown = folder_of(name).relative_to(ROOT)
                self.reasons[name] = f"{shown} could not be made (see above)"


def _make(name: str) -> int:
    """Status 0 where it is there, made now or earlier. What it prints is shown."""
    program = ROOT / "lab" / "environment.py"
    command = [sys.executable, str(program), name]
    return subprocess.run(command, stdout=sys.stderr, check=False).returncode
