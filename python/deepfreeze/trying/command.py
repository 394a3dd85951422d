"""The command `deepfreeze try`: its arguments, its story and its exit codes."""

from __future__ import annotations

import argparse
import importlib.util
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from deepfreeze.base import program
from deepfreeze.base.arguments import absolute
from deepfreeze.base.progress import is_watched
from deepfreeze.base.verbs import DIFFERENT, GOOD, INTERRUPTED, add_verb, failed, print_json
from deepfreeze.errors import CheckpointError, make_error
from deepfreeze.trying.lives import Life, See, live

_STEPS = 4000
_STEPS_MIN = 10
_DRAW_SECONDS = 0.1

_DESCRIPTION = "Train a small network, kill it, resume it, and compare: some 30 seconds."
_EPILOG = """\
A network that tells two spirals apart is trained with a checkpoint at every step, in DIRECTORY, and
killed (SIGKILL) at a random step. Another process goes on from the newest checkpoint. The weights,
the optimizer and the random generator of its end must be those of a training that nobody disturbed.
DIRECTORY is then a run like any other. Needs PyTorch.

--json: {run, seed, steps, killed_at, resumed_from, loss, same, seconds}
Exit: 0 good, 1 the two trainings differ, 2 usage, 3 any other failure.
"""


def add_to(verbs: Any) -> None:
    """Adds the verb to the parsers of a program."""
    parser = add_verb(verbs, "try", _DESCRIPTION, _EPILOG, main)
    parser.add_argument(
        "directory", metavar="DIRECTORY", type=absolute, nargs="?", default="deepfreeze-try",
        help="where the checkpoints go; it must be empty, or not there; default: deepfreeze-try",
    )  # fmt: skip
    parser.add_argument(
        "--steps", metavar="N", type=_steps, default=_STEPS, help=f"of training; default: {_STEPS}"
    )
    parser.add_argument("--seed", metavar="N", type=int, help="of the training and of the kill")


def main(options: argparse.Namespace) -> int:
    """Returns the exit code."""
    try:
        return _tell(options)
    except KeyboardInterrupt:
        return INTERRUPTED
    except CheckpointError as error:
        return failed("try", error.code, str(error), as_json=options.json)
    except OSError as error:
        return failed("try", "io", str(error), as_json=options.json)


def _tell(options: argparse.Namespace) -> int:
    run = Path(options.directory)
    check(run)
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    kill_at = random.Random(seed).randint(options.steps // 4, options.steps * 3 // 4)
    say = _Story(not options.json)
    began = time.monotonic()

    def lives(label: str, place: Path | None, kill: int | None = None) -> Life:
        return live(options.steps, seed, place, say.progress(label, options.steps), kill)

    say.line(f"A small network is trained for {options.steps} steps, each saved in {run}.")
    killed = lives("training", run, kill_at)
    say.line(f"Killed with SIGKILL once it told of step {killed.last}, loss {killed.loss:.4f}.")
    resumed = lives("resumed", run)
    say.line(f"A new process restored step {resumed.start} and trained to the end, "
             f"loss {resumed.loss:.4f}.")  # fmt: skip
    undisturbed = lives("undisturbed", None)
    is_same = resumed.digest == undisturbed.digest
    say.line(_verdict(is_same, seed))
    seconds = time.monotonic() - began
    if options.json:
        found = {"run": str(run), "seed": seed, "steps": options.steps, "killed_at": killed.last,
                 "resumed_from": resumed.start, "loss": resumed.loss, "same": is_same,
                 "seconds": round(seconds, 2)}  # fmt: skip
        print_json("try", found)
    else:
        _show(run)
    return GOOD if is_same else DIFFERENT


def check(run: Path) -> None:
    """CheckpointError with code "invalid_argument" if it can't begin."""
    why_not = ""
    if importlib.util.find_spec("torch") is None:
        why_not = "PyTorch is not installed here: `pip install torch`"
    elif run.exists() and (not run.is_dir() or any(run.iterdir())):
        why_not = f"{run} is not an empty directory: name another one, or delete it"
    if why_not:
        raise make_error("invalid_argument", why_not)


def _verdict(is_same: bool, seed: int) -> str:
    if is_same:
        return (
            "A training that nobody disturbed ends with the same weights, optimizer and random "
            "generator, bit for bit."
        )
    return f"It DIFFERS from a training that nobody disturbed (--seed {seed}): please report this."


def _show(run: Path) -> None:
    """The checkpoints, as the native program lists them."""
    found = program.find()
    if found is None:
        return
    print(f"\n$ deepfreeze ls {run}", flush=True)
    subprocess.run([str(found), "ls", str(run)], check=False)
    print(f"\nNext: `deepfreeze explore {run}` shows every tensor at every step in a browser, "
          f"`deepfreeze verify {run}` reads and checks them all.")  # fmt: skip


class _Story:
    """Lines on standard output; a counter on a terminal."""

    def __init__(self, is_told: bool) -> None:
        self._is_told = is_told
        self._is_watched = is_told and is_watched(sys.stdout)

    def line(self, text: str) -> None:
        if self._is_told:
            print(f"\r\033[K{text}" if self._is_watched else text, flush=True)

    def progress(self, label: str, steps: int) -> See:
        drawn = 0.0

        def see(step: int, loss: float) -> None:
            nonlocal drawn
            if self._is_watched and time.monotonic() - drawn >= _DRAW_SECONDS:
                drawn = time.monotonic()
                print(f"\r\033[K  {label}: step {step} of {steps}, loss {loss:.4f}", end="",
                      flush=True)  # fmt: skip

        return see


def _steps(text: str) -> int:
    number = int(text)
    if number < _STEPS_MIN:
        raise argparse.ArgumentTypeError(f"{number}: {_STEPS_MIN} steps at least")
    return number
