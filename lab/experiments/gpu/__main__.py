"""What checkpoints cost a training on one GPU, and whether they are right.

Without the name of a part all of them, one after the other, each in a process of its own. Exit
status: 0; 1 where DeepFreeze failed (a peer's failure is a result); 2 where there is no such
device; 130 where interrupted.
"""

import argparse
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from lab.experiments.everything import QUICK_RESULTS, RESULTS
from lab.experiments.gpu import resume, stall, torn, window
from lab.measure import devices, machine
from lab.measure.devices import Budget, Lines, read
from lab.measure.files import scratch
from lab.measure.options import (
    INTERRUPTED,
    interruptible,
    intervals,
    make_parser,
    positive,
    seeded,
    words_of,
)
from lab.networks.gpu_workloads import MODELS
from lab.report import gpu_table as table
from lab.report.bench_page import gpu_page
from lab.writers.loop_gpu import SAVERS

PROGRAM = "lab.experiments.gpu"
RUNS = {"resume": resume.run, "torn": torn.run, "stall": stall.run, "window": window.run}
SHARES = {
    "resume": 0.2,
    "torn": 0.4,
    "stall": 0.2,
}  # of the time that is left, at most; the window has the rest
NO_DEVICE = 2
END_SECONDS = 60  # after the time is over a part is told to end,
KILL_SECONDS = 300  # and killed so long after that: what it has in flight may be 16 GB


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser(PROGRAM, __doc__, "weights, batches and orders")
    parser.set_defaults(directory=Path("build"))
    savers = [saver.name for saver in SAVERS]
    parser.add_argument("part", nargs="?", choices=[*RUNS, "all"], default="all")
    parser.add_argument("--device", choices=[devices.CUDA, "cpu"], default=devices.CUDA)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it work?")
    parser.add_argument("--minutes", type=float, default=40.0, help="for all parts; default: 40")
    parser.add_argument("--workload", nargs="+", choices=list(MODELS), help="default: all")
    parser.add_argument("--savers", nargs="+", choices=savers, help="of the window; default: all")
    parser.add_argument("--every", type=intervals, help="default: 16,4,1; quick: 2")
    parser.add_argument("--rounds", type=positive, help="at most; default: 3; quick: 2")
    parser.add_argument(
        "--times", type=positive, help="trials of torn, saves of stall; default: 1000; quick: 3"
    )
    parser.add_argument(
        "--peer-times", type=positive, help="the same of the peer; default: as many"
    )
    parser.add_argument("--append", action="store_true", help="to what was measured before")
    parser.add_argument("--results", type=Path, help=f"default: {RESULTS}, {QUICK_RESULTS}")
    options = parser.parse_args(arguments)
    quick = options.quick
    options.every = options.every or ([2] if quick else [16, 4, 1])
    options.rounds = options.rounds or (2 if quick else 3)
    options.times = options.times or (3 if quick else 1000)
    options.peer_times = options.peer_times or options.times
    options.results = options.results or (QUICK_RESULTS if quick else RESULTS)
    return options


def facts(options: argparse.Namespace, seed: int, place: Path) -> dict[str, Any]:
    device = devices.describe(options.device)
    return {
        "format": 1,
        "command": shlex.join(words_of(f"{PROGRAM} {options.part}", options, seed)),
        "machine": {
            "device": device.pop("name"),
            **{f"device_{name}": value for name, value in device.items()},
            **machine.describe(place, torch.get_num_threads()),
        },
    }


def run_part(options: argparse.Namespace, seed: int) -> int:
    budget = Budget(options.minutes)
    lines = options.results / f"gpu-{options.part}.jsonl"
    try:
        with (
            scratch(options.directory, "bench-gpu-") as place,
            Lines(lines, options.append) as written,
        ):
            written.add("run", facts(options, seed, place))
            status = RUNS[options.part](options, seed, place, written, budget)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        status = INTERRUPTED
    print(table.markdown({options.part: read(lines)}), flush=True)
    return status


def run_all(options: argparse.Namespace, seed: int) -> int:
    budget = Budget(options.minutes)
    failed = 0
    for part in RUNS:
        seconds = budget.left_seconds() * SHARES.get(part, 1.0)
        command = [sys.executable, *words_of(f"{PROGRAM} {part}", options, seed)[1:]]
        command += ["--minutes", f"{seconds / 60}"]
        command += ["--directory", str(options.directory), "--results", str(options.results)]
        print(f"{PROGRAM}: {part}, {seconds / 60:.1f} minutes at most", flush=True)
        status = status_of(command, seconds + END_SECONDS)
        if status == INTERRUPTED:
            return INTERRUPTED
        failed += status != 0
    return 1 if failed else 0


def status_of(command: list[str], seconds: float) -> int:
    with subprocess.Popen(command) as part:
        try:
            return part.wait(seconds)
        except subprocess.TimeoutExpired:
            return 1
        finally:
            end(part)


def end(part: subprocess.Popen[bytes]) -> None:
    """It has time to write what it knows, and to delete its checkpoints."""
    if part.poll() is not None:
        return
    part.terminate()
    try:
        part.wait(KILL_SECONDS)
    except subprocess.TimeoutExpired:
        part.kill()


def interrupt_once(*_: object) -> None:
    """What tidies up is not interrupted again, as by the terminal and by who started it."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def write_summary(results: Path) -> None:
    """Of all parts, whenever they were run."""
    found = {part: read(results / f"gpu-{part}.jsonl") for part in reversed(RUNS)}
    found = {part: rows for part, rows in found.items() if rows}
    (results / "gpu.md").write_text(table.markdown(found))
    if "window" in found:
        (results / "gpu.html").write_text(gpu_page(found["window"]))


@interruptible
def main(arguments: list[str]) -> int:
    options = parse(arguments)
    reason = devices.missing(options.device)
    if reason:
        print(f"{PROGRAM}: {reason}", file=sys.stderr)
        return NO_DEVICE
    seed = seeded(options, PROGRAM)
    options.directory.mkdir(parents=True, exist_ok=True)
    options.results.mkdir(parents=True, exist_ok=True)
    status = run_all(options, seed) if options.part == "all" else run_part(options, seed)
    write_summary(options.results)
    return status


if __name__ == "__main__":
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, interrupt_once)
    sys.exit(main(sys.argv[1:]))
