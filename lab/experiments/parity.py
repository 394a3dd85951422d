"""The cost of parity over nodes, and of a rebuild: nodes are processes with a directory each.

All are on this machine and share its cores and its disk; their links are TLS over the loopback.
Jobs without parity and with each scheme take turns. Then two nodes, of which one trains with one
thread and the other one rests, with and without a partner. Exit status: 0; 1 if a job failed; 130
if interrupted.
"""

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.measure.options import interruptible, make_parser, positive, seeded

PROGRAM = "lab.experiments.parity"
NODES = 4
TRAINING_NODES = 2
SCHEMES: dict[str, tuple[int, int] | None] = {
    "no parity": None,
    "df.partner()": (1, 1),
    "df.parity(3, 1)": (3, 1),
    "df.parity(2, 2)": (2, 2),
}
LOST = (1, 2)  # of the last job, which bears two
NEVER_SECONDS = 300.0
FILES = "*.safetensors"


@dataclass(frozen=True)
class Save:
    """One save, as one rank saw it."""

    local_seconds: float
    protected_seconds: float  # after that
    cpu_seconds: float  # of both, by all threads


@dataclass(frozen=True)
class Job:
    scheme: str
    saves: list[Save]  # of all ranks


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser(PROGRAM, __doc__, "the state and the order of jobs")
    parser.add_argument("--megabytes", type=positive, default=256, help="of each node's state")
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--saves", type=positive, default=3, help="of each job, after a first one")
    parser.add_argument("--steps", type=positive, default=40, help="of training between two saves")
    parser.add_argument("--json", type=Path, metavar="FILE", help="medians and spreads")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--scheme", choices=SCHEMES, help=argparse.SUPPRESS)
    parser.add_argument("--trains", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def rank_main(options: argparse.Namespace) -> int:
    """One node of a job; its measurements go to standard output, as a JSON document."""
    import torch  # noqa: PLC0415  (not in the process that starts the ranks)
    import torch.distributed as dist  # noqa: PLC0415

    import deepfreeze as df  # noqa: PLC0415

    place, rank = options.directory, options.rank
    torch.set_num_threads(1)
    world = TRAINING_NODES if options.trains else NODES
    dist.init_process_group("gloo", f"file://{place}/meet", rank=rank, world_size=world)
    torch.manual_seed(options.seed + rank)
    state = {"own": df.per_rank(torch.randn(options.megabytes * 250_000))}
    pieces = SCHEMES[options.scheme]
    protect = None if pieces is None else df.parity(*pieces)
    with df.Checkpointer(
        place / f"node{rank}", near="node", link="lo", protect=protect, ranks=df.TorchRanks(),
        keep=df.keep(last=1),
    ) as ckpt:  # fmt: skip
        measure = train if options.trains else save_alone
        print(json.dumps(measure(options, ckpt, state)))
    dist.destroy_process_group()
    return 0


def save_alone(
    options: argparse.Namespace, ckpt: Any, state: dict[str, Any]
) -> list[dict[str, float]]:
    """The first save is not measured."""
    import torch.distributed as dist  # noqa: PLC0415

    found = []
    for step in range(options.saves + 1):
        state["own"].value.add_(1.0)  # all of it changes
        dist.barrier()
        began, used = time.perf_counter(), cpu_seconds()
        handle = ckpt.save(step, state)
        handle.wait("local", NEVER_SECONDS)
        local = time.perf_counter()
        if SCHEMES[options.scheme] is not None:
            handle.wait("protected", NEVER_SECONDS)
        dist.barrier()  # others may still read of this one
        end = time.perf_counter()
        found.append(
            {
                "local_seconds": local - began,
                "protected_seconds": end - local,
                "cpu_seconds": cpu_seconds() - used,
            }
        )
    return found[1:]


def train(options: argparse.Namespace, ckpt: Any, state: dict[str, Any]) -> tuple[float, float]:
    """The seconds of node 0 from after its first save until after the steps that follow the last
    one, and the processor time of its training thread meanwhile. Node 1 only takes part in the
    saves.
    """
    import torch  # noqa: PLC0415

    weights = torch.randn(1024, 1024)
    began, used = 0.0, 0.0
    for save in range(options.saves + 1):
        state["own"].value.add_(1.0)
        ckpt.save(save, state)
        if options.rank == 0:
            if save == 0:
                began, used = time.perf_counter(), time.thread_time()
            for _ in range(options.steps):
                weights = torch.tanh(weights @ weights.T)
    return time.perf_counter() - began, time.thread_time() - used


def ask_ranks(
    options: argparse.Namespace, scheme: str, place: Path, world: int, *more: str
) -> list[Any]:
    """Their documents."""
    command = [sys.executable, "-m", PROGRAM, "--scheme", scheme, "--directory", str(place)]
    command += ["--megabytes", str(options.megabytes), "--saves", str(options.saves)]
    command += ["--seed", str(options.seed), "--steps", str(options.steps), *more]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo"}
    ranks = [
        subprocess.Popen(
            [*command, "--rank", str(rank)], stdout=subprocess.PIPE, text=True, env=environment
        )
        for rank in range(world)
    ]
    try:
        outputs = [rank.communicate(timeout=2 * NEVER_SECONDS)[0] for rank in ranks]
    finally:
        for rank in ranks:  # also if one did not end in time
            rank.kill()
            rank.wait()
    if any(rank.returncode for rank in ranks):
        raise RuntimeError(f"a job with {scheme} failed")
    return [json.loads(text) for text in outputs]


def run_job(options: argparse.Namespace, scheme: str, place: Path) -> Job:
    found = ask_ranks(options, scheme, place, NODES)
    return Job(scheme, [Save(**save) for rank in found for save in rank])


@dataclass(frozen=True)
class Training:
    """With a partner over without: run time, and the processor time of the training thread, which
    is longer if others use the memory. And the seconds from save to save.
    """

    ratio: float
    thread_ratio: float
    save_interval_seconds: float


def training(options: argparse.Namespace, draw: random.Random) -> Training:
    found: dict[str, tuple[float, float]] = {}
    for scheme in draw.sample(("no parity", "df.partner()"), 2):
        with tempfile.TemporaryDirectory(prefix="parity-", dir=options.directory) as place:
            found[scheme] = ask_ranks(options, scheme, Path(place), TRAINING_NODES, "--trains")[0]
    (plain, plain_thread), (beside, thread) = found["no parity"], found["df.partner()"]
    return Training(beside / plain, thread / plain_thread, plain / (options.saves + 1))


@dataclass(frozen=True)
class Rebuild:
    """One call of `deepfreeze rebuild`, and a copy of as many bytes as it writes."""

    bytes: int  # calculated
    seconds: float
    copy_seconds: float


def drop_caches(place: Path) -> None:
    """Of all files there, so that they come from the disk."""
    os.sync()
    for path in place.rglob(FILES):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def rebuild(place: Path) -> Rebuild:
    """After the loss of two nodes of four: half of the files are calculated from the others."""
    left = [place / f"node{node}" for node in range(NODES) if node not in LOST]
    program = str(Path(sys.executable).with_name("deepfreeze"))
    whole = place / "whole"
    drop_caches(place)
    began = time.perf_counter()
    done = subprocess.run(
        [program, "rebuild", str(whole), *map(str, left), "--json"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    seconds = time.perf_counter() - began
    found = json.loads(done.stdout)
    calculated = sum(file["bytes"] for file in found["files"] if file["calculated"])
    survivors = [path for node in left for path in (node / found["directory"]).glob(FILES)]
    return Rebuild(calculated, seconds, copy_as_much(place, survivors, whole))


def copy_as_much(place: Path, survivors: Sequence[Path], whole: Path) -> float:
    """The least that a rebuild must do, by dd past the page cache: each file of the checkpoint that
    is left is read once, which is as many bytes as are written, and these are synced.
    """
    drop_caches(place)
    began = time.perf_counter()
    for index, path in enumerate(sorted(survivors)):
        target = whole.with_name(f"copy-{index}")
        subprocess.run(
            ["dd", f"if={path}", f"of={target}", "bs=4M", "iflag=direct", "oflag=direct",
             "conv=fsync", "status=none"],
            check=True,
        )  # fmt: skip
    return time.perf_counter() - began


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} [{min(values):.2f}, {max(values):.2f}]"


def line(job_saves: list[Save], plain_cpu: float, gigabytes: float) -> dict[str, Any]:
    seconds = [save.protected_seconds for save in job_saves]
    return {
        "local_seconds": spread([save.local_seconds for save in job_saves]),
        "protected_seconds": spread(seconds),
        "gigabytes_per_second": spread([gigabytes / each for each in seconds]),
        "cpu_seconds_per_gigabyte": spread(
            [(save.cpu_seconds - plain_cpu) / gigabytes for save in job_saves]
        ),
    }


def report(
    jobs: list[Job], rebuilds: list[Rebuild], trainings: list[Training], megabytes: int
) -> dict[str, Any]:
    gigabytes = megabytes / 1000
    saves = {name: [s for job in jobs if job.scheme == name for s in job.saves] for name in SCHEMES}
    plain = statistics.median(save.cpu_seconds for save in saves["no parity"])
    told: dict[str, Any] = {
        name: line(found, plain, gigabytes) for name, found in saves.items() if SCHEMES[name]
    }
    told["rebuild"] = {
        "gigabytes_per_second": spread([one.bytes / 1e9 / one.seconds for one in rebuilds]),
        "rate_over_copy": spread([one.copy_seconds / one.seconds for one in rebuilds]),
    }
    told["training beside a partner"] = {
        "run_time_ratio": spread([one.ratio for one in trainings]),
        "thread_time_ratio": spread([one.thread_ratio for one in trainings]),
        "save_interval_seconds": spread([one.save_interval_seconds for one in trainings]),
    }
    return told


def print_report(told: dict[str, Any]) -> None:
    print(f"{NODES} nodes on one machine; a node's seconds, GB of its state; median [all]")
    for name, figures in told.items():
        print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in figures.items()))


@interruptible
def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.rank is not None:
        return rank_main(options)
    options.seed = seeded(options, PROGRAM)
    jobs: list[Job] = []
    rebuilds: list[Rebuild] = []
    trainings: list[Training] = []
    draw = random.Random(options.seed)
    for number in range(options.rounds):
        for scheme, pieces in draw.sample(list(SCHEMES.items()), len(SCHEMES)):
            with tempfile.TemporaryDirectory(prefix="parity-", dir=options.directory) as place:
                jobs.append(run_job(options, scheme, Path(place)))
                if pieces == (2, 2):
                    rebuilds.append(rebuild(Path(place)))
            print(f"round {number + 1} of {options.rounds}: {scheme}", flush=True)
        trainings.append(training(options, draw))
        print(f"round {number + 1} of {options.rounds}: training", flush=True)
    told = report(jobs, rebuilds, trainings, options.megabytes)
    if options.json is not None:
        options.json.write_text(json.dumps(told, indent=2) + "\n")
    print_report(told)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
