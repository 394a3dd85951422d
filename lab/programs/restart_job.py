"""What one process of a restart does: the words that who asks and who answers share.

Light: who only plans imports no numpy.
"""

from dataclasses import dataclass
from pathlib import Path

MODEL, OPTIMIZER, SCHEDULER, RNG, DATA = "model", "optimizer", "scheduler", "rng", "data"
PARTS = (MODEL, OPTIMIZER, SCHEDULER, RNG, DATA)
BATCHES = 8  # of an epoch
STEPS = 3 * BATCHES
INTERVAL = 5
KILL_STEP = 13  # within the second epoch, three steps after a save within it
THREADS, MORE_THREADS = 1, 2

KILLED, KILLED_IN_SAVE = "killed", "killed in a save"
OTHER_THREADS, OTHER_ORDER = "killed, more threads", "killed, other batches"
OTHER_PIPELINE = "killed, pipeline seeded otherwise"
IN_BACKWARD, FIT, FIT_NO_DROPOUT = "steps in backward", "fit", "fit, no dropout"

BIT_IDENTICAL, ULP_CLOSE, DIVERGED = "BIT_IDENTICAL", "ULP_CLOSE", "DIVERGED"
FAILED, NONDETERMINISTIC = "FAILED", "NONDETERMINISTIC_BASELINE"


@dataclass(frozen=True)
class Job:
    """`fault` is what befalls it, or what has changed since when it resumes."""

    writer: str  # of the module's WRITERS; empty: nothing is saved
    saved: tuple[str, ...]  # the parts that it is given
    variant: str  # of the training; empty: the usual one
    directory: str
    seed: int  # of the first weights and of all random numbers
    resumes: bool = False
    fault: str = ""

    @property
    def place(self) -> Path:
        return Path(self.directory)

    @property
    def threads(self) -> int:
        return MORE_THREADS if self.resumes and self.fault == OTHER_THREADS else THREADS
