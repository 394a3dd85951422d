"""One list of cases for every framework: `python -m tests.frameworks.conformance torch`.

Each case takes the small training of NAME_training.py (training.py defines its methods) and
gives its faults. The background copier is slow here, so that training runs into it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.e2e.command import announce_seed, conclude, make_parser, scratch
from tests.support import warm_python

from .training import FRAMEWORKS, IMPORTS, SEED, STEPS, Options, Training, make, variables_of

MODULE = "tests.frameworks.conformance"
SLOW = {"DEEPFREEZE_FAIL": "capture.background=sleep:20"}
HALF = STEPS // 2
LARGE_BYTES = 64 * 1024
OTHER_SEED = 77  # of a process that restores: everything that is drawn must come from the run
CHILD_SECONDS_MAX = 120.0


@contextlib.contextmanager
def made(framework: str, options: Options) -> Iterator[Training]:
    training = make(framework, options)
    try:
        yield training
    finally:
        training.close()


class Cases:
    """The cases of one framework, in one directory."""

    def __init__(
        self, framework: str, place: Path, kills: int, seed: int, forks_all: bool = False
    ) -> None:
        self.framework = framework
        self.forks_all = forks_all
        self.place = place
        self.kills = kills
        self.random = random.Random(seed)
        self.digests: dict[int, str] = {}  # of the state when each step was saved
        with self.made() as undisturbed:
            began = time.monotonic()  # as of the processes that are killed
            undisturbed.train(STEPS, lambda _: None)
            self.reference = undisturbed.digest()
        self.seconds = time.monotonic() - began

    def made(
        self, run: Path | None = None, **more: object
    ) -> contextlib.AbstractContextManager[Training]:
        return made(self.framework, Options(run, **more))  # type: ignore[arg-type]

    def saved_run(self, name: str, until: int = HALF, forget: str = "") -> Path:
        run = self.place / name
        with self.made(run, forget=forget) as training:

            def note(step: int) -> None:
                self.digests[step] = training.digest()

            training.train(until, note)
        return run

    # The cases

    def resumes_bit_for_bit(self) -> Iterator[str]:
        """In a process's second object, that was seeded otherwise."""
        run = self.saved_run("resumed")
        with self.made(run, seed=OTHER_SEED) as training:
            if training.restore(None) != HALF:
                yield "it restored another step"
            training.train(STEPS, lambda _: None)
            if training.digest() != self.reference:
                yield "it ended otherwise than what never stopped"

    def ends_otherwise_where_a_part_is_forgotten(self) -> Iterator[str]:
        """The negative controls of the case above."""
        for part in make(self.framework, Options()).forgettable:
            run = self.saved_run(f"without-{part}", forget=part)
            with self.made(run, seed=OTHER_SEED, forget=part) as training:
                training.restore(None)
                training.train(STEPS, lambda _: None)
                if training.digest() == self.reference:
                    yield f"without {part} it ended alike"

    def stores_what_was_there_at_each_save(self) -> Iterator[str]:
        """Though training goes on while the copier sleeps."""
        run = self.saved_run("each", STEPS)
        with self.made(run, seed=OTHER_SEED) as training:
            for step in range(1, STEPS + 1):
                training.restore(step)
                if training.digest() != self.digests[step]:
                    yield f"step {step} is not what was saved"

    def stores_shared_arrays_once(self) -> Iterator[str]:
        from deepfreeze import _core
        from deepfreeze.state.dtypes import stored_bytes

        run = self.saved_run("shared", 1)
        (info,) = _core.list_checkpoints(str(run))
        tensors = _core.open_checkpoint(info).tensors()
        sizes = {each.key: stored_bytes(each.dtype, each.shape) for each in tensors}
        large = [key for key, size in sizes.items() if size >= LARGE_BYTES]
        expected = make(self.framework, Options()).large_arrays
        if len(large) != expected:
            yield f"{expected} arrays of 64 KiB and more, stored {sorted(large)}"

    def finds_a_flipped_bit(self) -> Iterator[str]:
        """And restores the step before."""
        run = self.saved_run("flipped")
        newest = max(run.glob("step-*"))
        files = list(newest.glob("*.safetensors"))
        path = max(files, key=lambda each: each.stat().st_size)
        place = self.random.randrange(path.stat().st_size)
        data = bytearray(path.read_bytes())
        data[place] ^= 1 << self.random.randrange(8)
        path.write_bytes(data)
        with self.made(run, seed=OTHER_SEED) as training:
            step = training.restore(None)
            if step != HALF - 1 or training.digest() != self.digests[step]:
                yield f"byte {place} of {path.name}: restored step {step}"

    def names_what_does_not_fit(self) -> Iterator[str]:
        import deepfreeze as df

        run = self.saved_run("narrow", 1)
        with self.made(run, wide=True) as training:
            before = training.digest()
            try:
                training.restore(None)
                yield "another architecture was restored into"
            except df.MismatchError as error:
                if training.misfit not in str(error):
                    yield f"the error does not name {training.misfit}: {error}"
            if training.digest() != before:
                yield "the refused restore has changed something"

    def resumes_after_kills(self) -> Iterator[str]:
        """SIGKILL at a random time; each time a new process goes on."""
        kills = 0
        for run_number in range(100 * (self.kills + 1)):
            if kills >= self.kills:
                return
            run = self.place / f"killed-{run_number}"
            killed, digest = self.killed_once(run)
            kills += killed
            if digest != self.reference:
                yield f"run {run_number} ended otherwise"
        yield f"only {kills} kills came in time"

    def killed_once(self, run: Path) -> tuple[bool, str]:
        first = Child(self.framework, run, SEED)
        killed = first.killed_after(self.random.uniform(0, 1.5 * self.seconds))
        resumes = any(run.glob("step-*/manifest.json"))
        seed = OTHER_SEED if resumes else SEED
        second = Child(self.framework, run, seed, is_forked=self.forks_all)
        return killed, second.digest()


CASES: dict[str, Callable[[Cases], Iterator[str]]] = {
    name: case for name, case in vars(Cases).items()
    if name.split("_")[0] in ("resumes", "ends", "stores", "finds", "names")
}  # fmt: skip


class Child:
    """A process that resumes a run, or begins it, and trains to the end."""

    def __init__(self, framework: str, run: Path, seed: int, is_forked: bool = True) -> None:
        """A process that is not forked orders sets by a hash seed of its own."""
        command = [
            sys.executable,
            "-m",
            MODULE,
            framework,
            "--train",
            str(run),
            "--seed",
            str(seed),
        ]
        environment = {**os.environ, **variables_of(framework)}
        if is_forked:
            self._process = warm_python.start(
                command, IMPORTS.get(framework, ()), env=environment, stdout=subprocess.PIPE
            )
        else:
            self._process = subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, text=True
            )

    def killed_after(self, seconds: float) -> bool:
        """Kills it so long after it begins to restore; False if it was over before."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "begins\n"
        time.sleep(seconds)
        self._process.send_signal(signal.SIGKILL)
        return self._process.wait() == -signal.SIGKILL

    def digest(self) -> str:
        stdout, _ = self._process.communicate(timeout=CHILD_SECONDS_MAX)
        assert self._process.returncode == 0
        return stdout.splitlines()[-1]


def train(framework: str, run: Path, seed: int) -> int:
    """The work of a Child."""
    with made(framework, Options(run, seed)) as training:
        print("begins", flush=True)
        training.restore(None)
        training.train(STEPS, lambda _: None)
        print(training.digest(), flush=True)
    return 0


def with_slow_copier() -> None:
    """Starts this process anew: fail points are armed when the package is loaded."""
    environment = {**os.environ, **SLOW}
    if os.environ != environment:
        os.execve(sys.executable, [sys.executable, "-m", MODULE, *sys.argv[1:]], environment)


def parse() -> argparse.Namespace:
    parser = make_parser(MODULE, __doc__)
    parser.add_argument("framework", choices=FRAMEWORKS)
    parser.add_argument("--case", choices=CASES, help="default: all of them")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--fork-all", action="store_true", help="fork the resumed one, too")
    parser.add_argument("--train", type=Path, metavar="RUN", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    options = parse()
    if options.train:
        return train(options.framework, options.train, options.seed)
    with_slow_copier()
    seed = announce_seed(options)
    found: dict[str, list[str]] = {}
    with scratch(options, "frameworks") as place:
        cases = Cases(options.framework, Path(place), options.kills, seed, options.fork_all)
        for name in [options.case] if options.case else CASES:
            found[name] = list(CASES[name](cases))
    faults = [f"{name}: {fault}" for name, own in found.items() for fault in own]
    text = f"{options.framework}: {len(found)} cases, {options.kills} kills"
    return conclude(options, text, {"seed": seed, "found": found}, faults)


if __name__ == "__main__":
    sys.exit(main())
