"""The command `deepfreeze explore`: its arguments, its output and its exit codes."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path
from typing import Any

from deepfreeze.base.progress import Progress, human_bytes
from deepfreeze.base.verbs import GOOD, INTERRUPTED, add_verb, failed, printable
from deepfreeze.errors import CheckpointError
from deepfreeze.exploring import single_file
from deepfreeze.exploring.answers import Answers, dumped
from deepfreeze.exploring.cache import Cache, default_folder
from deepfreeze.exploring.discovering import runs_of
from deepfreeze.exploring.opening import opened
from deepfreeze.exploring.runs import read_runs
from deepfreeze.exploring.server import PageServer
from deepfreeze.exploring.tensor_numbers import QUANTITIES

_PORT_MAX = 65535

_DESCRIPTION = "Show how a model became what it is: runs, forks, and every tensor at every step."
_EPILOG = """\
RUN is a run's directory, or a directory with runs below it. Runs that they started from are
shown, too. The page is served on this machine alone, to the browser that opens the printed
address first; on a far machine the command prints the `ssh -L` that brings it to you.

Numbers about tensors are computed from the data once, while the page is open, and kept in
$XDG_CACHE_HOME/deepfreeze/explore. No run is ever written to.

--json: {runs: [{id, name, path, run_id, parent, forks, steps: [...], tensors: [...], columns,
  numbers: {QUANTITY: [[a number for each column] for each tensor]}}]}; null is not known
Exit: 0 good, 2 usage, 3 any other failure.
"""


def add_to(verbs: Any) -> None:
    """Adds the verb to the parsers of a program."""
    parser = add_verb(verbs, "explore", _DESCRIPTION, _EPILOG, _main)
    parser.add_argument("runs", metavar="RUN", nargs="+", help="A run, or a directory with runs")
    parser.add_argument("--html", metavar="OUT", type=Path, help="Write the page as one file")
    parser.add_argument(
        "--port", type=_port, default=0, help="The page's port; default: a free one"
    )
    parser.add_argument("--no-open", action="store_true", help="Start no browser")
    parser.add_argument(
        "--no-read", action="store_true", help="Read no tensors: only headers, and the cache"
    )
    parser.add_argument("--cache", metavar="DIR", type=Path, help="Keep computed numbers there")


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > _PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no port")
    return int(text)


def _main(options: argparse.Namespace) -> int:
    try:
        return _explore(options)
    except CheckpointError as error:
        return failed("explore", error.code, str(error), as_json=options.json)
    except OSError as error:
        return failed("explore", "io", str(error), as_json=options.json)
    except KeyboardInterrupt:
        return INTERRUPTED


def _explore(options: argparse.Namespace) -> int:
    cache = Cache(options.cache or default_folder())
    answers = Answers(read_runs(runs_of(options.runs)), cache, reads=not options.no_read)
    if options.html is None and not options.json:
        _serve(answers, options)
        return GOOD
    total = answers.missing_bytes() if answers.reads else 0
    if not answers.reads:
        answers.read_ranges()
    else:
        with Progress("look at tensors", total) as progress:
            answers.compute_all(progress.add)
    if total and not cache.writable:
        print("note: the numbers could not be kept for the next time", file=sys.stderr)
    if options.json:
        _print_all(answers)
    if options.html is not None:
        size = single_file.write(options.html, answers)
        told = sys.stderr if options.json else sys.stdout
        print(f"{printable(os.fspath(options.html))}: {human_bytes(size)}", file=told)
    return GOOD


def _print_all(answers: Answers) -> None:
    document = answers.model()
    for run in document["runs"]:
        numbers = answers.numbers(run["id"])
        run.update(answers.tensors(run["id"]))
        run["numbers"] = {name: numbers.exact(name).tolist() for name in QUANTITIES}
    sys.stdout.buffer.write(dumped(document) + b"\n")
    sys.stdout.flush()


def _serve(answers: Answers, options: argparse.Namespace) -> None:
    with PageServer(answers, options.port) as server:
        port, url = server.server_port, server.url
        print(f"Open {url}", flush=True)
        if _is_far():
            print(
                f"From another machine: ssh -L {port}:127.0.0.1:{port} THIS-MACHINE, and open the "
                "address there",
                flush=True,
            )
        print("It works once. Ctrl-C ends the page.", file=sys.stderr)
        answers.begin()
        opens = not options.no_open and not _is_far()
        try:
            with (
                contextlib.suppress(KeyboardInterrupt),
                opened(url) if opens else contextlib.nullcontext(),
            ):
                server.serve_forever(poll_interval=0.2)
        finally:
            answers.stop()


def _is_far() -> bool:
    """Whether the person sits elsewhere, so that a browser here is of no use."""
    return bool(os.environ.get("SSH_CONNECTION")) or not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
