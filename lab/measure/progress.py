"""How far a study is: a line that is overwritten on a terminal, else a line for each case."""

import sys
import time
from collections.abc import Callable, Sequence

from lab.measure.case import Case

BAR_CHARACTERS = 24


class Progress:
    """Expects of what is left that it takes as much longer, or shorter, as what is done did."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self._count = len(cases)
        self._left = sum(case.seconds for case in cases)
        self._expected = self._left
        self._began = time.monotonic()
        self._done = 0
        self._terminal = sys.stderr.isatty()

    def begins(self, case: Case) -> None:
        self._show(f"{case.key} ({self._done + 1} of {self._count}, {self._remaining()} left)")

    def ended(self, case: Case) -> None:
        self._left -= case.seconds
        self._done += 1

    def close(self) -> None:
        if self._terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def _remaining(self) -> str:
        done = self._expected - self._left
        pace = (time.monotonic() - self._began) / done if done > 0 else 1.0
        seconds = self._left * pace
        return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"

    def _show(self, text: str) -> None:
        if not self._terminal:
            print(f"study: {text}", file=sys.stderr, flush=True)
            return
        share = 1 - self._left / self._expected if self._expected else 1.0
        bar = "#" * int(BAR_CHARACTERS * share)
        line = f"[{bar:.<{BAR_CHARACTERS}}] {text}"
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)


# Progress on stderr: one line that is overwritten on a terminal, else one a segment.


class Follower:
    """Called with a segment's label; it returns a function that is called with each step."""

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
