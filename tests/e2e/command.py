"""The common parts of proofs that are commands: options, seed, parts, report, exit status."""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support import warm_python


def make_parser(module: str, description: str | None) -> argparse.ArgumentParser:
    """With the options of every proof."""
    parser = argparse.ArgumentParser(prog=module, description=description)
    parser.add_argument("--seed", type=int, help="of all that is drawn; default: random")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--directory", type=Path, help="directory of the runs; default: temporary")
    return parser


def announce_seed(options: argparse.Namespace) -> int:
    """The seed to use; told before anything can go wrong."""
    drawn = random.SystemRandom().randrange(1 << 32)
    seed: int = drawn if options.seed is None else options.seed
    print(f"seed={seed} (rerun with --seed {seed})", file=sys.stderr, flush=True)
    return seed


def scratch(options: argparse.Namespace, name: str) -> tempfile.TemporaryDirectory[str]:
    """A directory that goes when the proof is over."""
    return tempfile.TemporaryDirectory(prefix=f"{name}-", dir=options.directory)


def in_own_process(
    module: str,
    part: Mapping[str, object],
    options: argparse.Namespace,
    fail_points: str,
    **more: str,
) -> Any:
    """The JSON document of part of a proof. Fail points are armed when the package is loaded."""
    if options.directory is not None:
        part = {**part, "directory": options.directory}
    command = [sys.executable, "-m", module]
    for name, value in part.items():
        command += [f"--{name}", str(value)]
    environment = {**os.environ, "DEEPFREEZE_FAIL": fail_points, **more}
    done = warm_python.run(command, env=environment, stdout=subprocess.PIPE)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command[1:])}: exit status {done.returncode}")
    return json.loads(done.stdout)


def progress(done: int, total: int, what: str) -> None:
    """One line of a terminal, overwritten; elsewhere nothing."""
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        print(f"\r\033[K  {done}/{total} {what}", end=end, file=sys.stderr, flush=True)


def with_faults(text: str, faults: Sequence[str], most: int = 20) -> str:
    """A report with its faults."""
    return "\n".join([text, *(f"FAULT: {fault}" for fault in faults[:most])])


def conclude(
    options: argparse.Namespace, text: str, figures: dict[str, Any], faults: Sequence[str]
) -> int:
    """Prints the report, or with --json the figures; the exit status."""
    print(json.dumps(figures) if options.json else with_faults(text, faults))
    return 1 if faults else 0
