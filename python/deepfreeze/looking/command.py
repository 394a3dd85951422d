"""`python3 -m deepfreeze dcp VERB`, as the native program calls it; that program has the help."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable

from deepfreeze.base.verbs import INTERRUPTED, failed
from deepfreeze.errors import CheckpointError, make_error
from deepfreeze.looking.checks import scrub, verify
from deepfreeze.looking.collecting import gc
from deepfreeze.looking.contents import diff, export, show
from deepfreeze.looking.ids import is_utf8
from deepfreeze.looking.listing import ls
from deepfreeze.looking.visits import doctor

_Verb = Callable[[argparse.Namespace], int]


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="deepfreeze", allow_abbrev=False, add_help=False)
    verbs = parser.add_subparsers(dest="verb", required=True)

    def add(name: str, main: _Verb, *places: str, flags: str = "") -> argparse.ArgumentParser:
        verb = verbs.add_parser(name, allow_abbrev=False, add_help=False)
        for place in places:
            verb.add_argument(place)
        for flag in ["--json", *flags.split()]:
            verb.add_argument(flag, action="store_true")
        verb.set_defaults(main=main)
        return verb

    add("ls", ls, "run")
    add("show", show, "run").add_argument("key", nargs="?")
    add("verify", verify, "run", flags="--deep --fast")
    add("doctor", doctor, "run", flags="--verify --repair --delete-debris")
    add("diff", diff, "a", "b", flags="--all")
    scrubbing = add("scrub", scrub)
    scrubbing.add_argument("runs", nargs="+")
    for name in ("--rate", "--max-seconds"):
        scrubbing.add_argument(name)
    collecting = add("gc", gc, "run", flags="--dry-run")
    for name in ("--keep-last", "--keep-every"):
        collecting.add_argument(name, type=_positive)
    collecting.add_argument("--keep-best")
    exporting = add("export", export, "run", "out", flags="--force")
    exporting.add_argument("--prefix", default="")
    exporting.add_argument("--keys", nargs="+", action="extend")
    return parser


def _rest(options: argparse.Namespace) -> list[str]:
    """The flags and options that are passed on to the native program."""
    words = []
    for name, value in vars(options).items():
        flag = "--" + name.replace("_", "-")
        if name in ("rate", "max_seconds") and value is not None:
            words += [flag, value]
        elif value is True and name != "json":
            words.append(flag)
    return words


def main(words: list[str]) -> int:
    """Runs one verb and returns its exit code."""
    options = _parser().parse_args(words)
    options.rest = _rest(options)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        _check_utf8(words)
        code: int = options.main(options)
        sys.stdout.flush()
    except CheckpointError as error:
        return failed(options.verb, error.code, str(error), as_json=options.json)
    except OSError as error:
        return failed(options.verb, "io", str(error), as_json=options.json)
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def _check_utf8(words: list[str]) -> None:
    odd = next((word for word in words if not is_utf8(word)), None)
    if odd is not None:
        cause = (
            "checkpoints of DCP are found only under paths that are UTF-8: rename it, or link to it"
        )
        raise make_error("unsupported", f"{odd}: {cause}")
