"""The options that all programs of lab.experiments have, and the text that repeats them."""

import argparse
import random
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path

INTERRUPTED = 130
NOT_SHOWN = ("part", "minutes", "directory", "json", "markdown", "out", "results")


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def intervals(text: str) -> list[int]:
    return [positive(part) for part in text.split(",")]


def make_parser(program: str, doc: str | None, drawn: str, **files: str) -> argparse.ArgumentParser:
    """With the options that all have: `drawn` is by the seed, `files` are results to write."""
    parser = argparse.ArgumentParser(prog=program, description=doc)
    parser.add_argument("--seed", type=int, help=f"of {drawn}; default: random")
    parser.add_argument("--directory", type=Path, default=Path(), help="for the checkpoints")
    for name, what in files.items():
        parser.add_argument(f"--{name}", type=Path, metavar="FILE", help=what)
    return parser


def seeded(options: argparse.Namespace, program: str) -> int:
    """The seed that was asked for, or a random one. Printed, so that the same can be done again."""
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    print(f"{program}: seed={seed} (rerun with --seed {seed})", flush=True)
    return int(seed)


def words_of(program: str, options: argparse.Namespace, seed: int) -> list[str]:
    """What does the same again; without places, which are this machine's."""
    words = ["python", "-m", *program.split()]
    for name, value in {**vars(options), "seed": seed}.items():
        if name in NOT_SHOWN or value is None or value is False:
            continue
        words.append(f"--{name.replace('_', '-')}")
        if name == "every":
            words.append(",".join(map(str, value)))
        elif value is not True:
            words += map(str, value if isinstance(value, list) else [value])
    return words


def interruptible(main: Callable[..., int]) -> Callable[..., int]:
    """Ends with the exit status of an interrupt; earlier measurements are kept."""

    @wraps(main)
    def carry_out(*arguments: object) -> int:
        try:
            return main(*arguments)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return INTERRUPTED

    return carry_out
