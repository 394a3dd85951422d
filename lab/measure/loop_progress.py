"""What is being done, on stderr: one line that is overwritten on a terminal, else one a segment."""

from __future__ import annotations

import sys
from collections.abc import Callable

BAR_CHARACTERS = 24


class Follower:
    """Called with a segment's label; what it returns is called with each step."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.terminal = sys.stderr.isatty()

    def __call__(self, label: str) -> Callable[[int], None]:
        if not self.terminal:
            print(f"  {label}", file=sys.stderr, flush=True)

        def show(step: int) -> None:
            if self.terminal:
                bar = "#" * (BAR_CHARACTERS * step // self.steps)
                line = f"  {label:<44} [{bar:.<{BAR_CHARACTERS}}] {step}/{self.steps}"
                self._overwrite(line)

        show(0)
        return show

    def clear(self) -> None:
        if self.terminal:
            self._overwrite("")

    def _overwrite(self, line: str) -> None:
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
