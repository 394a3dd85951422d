"""Soak: `python -m tests.e2e.soak --saves 10000 [--mode window|ring] [--seed S] [--json]`.

Saves in a loop while a small model trains, attached, two checkpoints kept. Some saves are torn on
purpose, some find a disk that fails. After the warm-up nothing may grow: memory, descriptors,
threads, objects. What was committed last must be what the state was.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import logging
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

import torch
from torch import nn

import deepfreeze as df
from examples.digest import tensor_bytes

from .command import announce_seed, conclude, make_parser, progress, scratch

MODES = ("window", "ring")
# Ring mode needs more state than the least arena of 8 MiB: 1024 x 1024 with two moments is 12 MiB.
WIDTHS = {"window": 160, "ring": 1024}
ARENA_BYTES = 8 << 20
RING_SHARE = 20  # one save in ring mode for so many in window mode: they are large
TORN_EVERY = 7
REFUSED_EVERY = 11  # the disk refuses the whole file
REATTACHED_EVERY = 13
SAMPLES = 24
WARM_UP_SHARE = 0.25
# One write fails in the middle of a save; and the copier begins late, so that windows stay open.
FAIL_POINTS = "part.write=error:EIO@25;capture.background=sleep:1"

# Samples are taken after wait() and a collection, and compared as medians of the first and last
# third after the warm-up: half of all saves lie between. Descriptors must not move at all. The
# thread that completed the last save may not be gone yet, and what the last save has left differs
# by its outcome: 5 objects were seen; a leak of one a save adds 200 in the smallest soak.
# Resident memory: in window mode it moved by 0.3 MB in 10,000 saves, and 2 MiB would be 420 bytes
# a save. In ring mode it moves by whole tensors of 4 MiB, up and down, by up to 38 MB from the
# least to the most of 1,500 saves and 4 MB between such medians: that bound finds only slabs.
GROWTH_MAX = {"descriptors": 0, "threads": 1, "objects": 8}
RSS_GROWTH_BYTES_MAX = {"window": 2 << 20, "ring": 24 << 20}


@dataclass(frozen=True)
class Sample:
    """What the process holds, with nothing in flight and after a collection."""

    saves: int
    rss_bytes: int
    descriptors: int
    threads: int
    objects: int  # of our types


@dataclass
class Soak:
    """One mode's curve, and what became of its saves."""

    mode: str
    saves: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    guarded_bytes: int = 0  # of the last whole save
    fenced: int = 0
    curve: list[Sample] = field(default_factory=list)
    restored: str = ""  # "equal" where the newest checkpoint is the state at its save()

    def after_warm_up(self) -> list[Sample]:
        return [each for each in self.curve if each.saves >= WARM_UP_SHARE * self.saves]

    def growth(self, name: str) -> int:
        """From the first third after the warm-up to the last, by their medians."""
        values = [getattr(each, name) for each in self.after_warm_up()]
        third = max(1, len(values) // 3)
        return int(median(values[-third:]) - median(values[:third]))

    def bounds(self) -> dict[str, int]:
        return {"rss_bytes": RSS_GROWTH_BYTES_MAX[self.mode], **GROWTH_MAX}

    def faults(self) -> list[str]:
        faults = [
            f"{name} grew by {self.growth(name)}, more than {most}"
            for name, most in self.bounds().items()
            if self.growth(name) > most
        ]
        if self.restored != "equal":
            faults.append(f"the newest checkpoint is {self.restored or 'missing'}")
        if self.outcomes.get("other"):
            faults.append(f"{self.outcomes['other']} saves failed for no cause of ours")
        if self.guarded_bytes == 0 or self.fenced == 0:
            faults.append("nothing was captured after save(): the test has no power")
        return [f"{self.mode}: {fault}" for fault in faults]


class Trainer:
    """A linear layer under Adam, attached, and its checkpointer."""

    def __init__(self, run: Path, mode: str) -> None:
        width = WIDTHS[mode]
        self.model = nn.Linear(width, width)
        self.optim = torch.optim.Adam(self.model.parameters(), lr=1e-3, fused=True)
        self.state = {"model": self.model, "optim": self.optim, "rng": df.RNG()}
        arena = ARENA_BYTES if mode == "ring" else None
        self.step()
        self.ckpt = df.Checkpointer(
            run, keep=df.keep(last=2), profile="latency", arena_bytes_max=arena
        )
        self.ckpt.attach(self.optim)

    def step(self) -> None:
        for parameter in self.model.parameters():
            parameter.grad = torch.randn_like(parameter)
        self.optim.step()

    def save(self, step: int) -> df.SaveHandle:
        handle = self.ckpt.save(step, self.state)
        assert handle is not None
        return handle

    def tear(self) -> None:
        """A change that no fence stands before; in memory that is still to be copied or not."""
        with torch.no_grad():
            self.model.weight.mul_(0.999)

    def reattach(self) -> None:
        """Guards and hooks come and go, too."""
        self.ckpt.detach(self.optim)
        self.ckpt.attach(self.optim)

    def forget_torn(self) -> None:
        """What was once torn is copied at once from then on: nothing would be left to tear."""
        self.ckpt._lazy._guards.eager.clear()

    def bytes(self) -> list[bytes]:
        return [tensor_bytes(each.detach()) for each in self.model.parameters()]


def outcome_of(handle: df.SaveHandle) -> str:
    error = handle.durable.exception()
    if error is None:
        return "durable"
    if isinstance(error, df.TornCaptureError):
        return "torn"
    if "Input/output error" in str(error):
        return "failed write"
    return "refused" if "File too large" in str(error) else "other"


@contextlib.contextmanager
def refusing_disk() -> Iterator[None]:
    """No file may grow beyond one page: EFBIG, from the system itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.getpagesize(), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def take_sample(saves: int) -> Sample:
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    descriptors = len(os.listdir("/proc/self/fd"))
    threads = len(os.listdir("/proc/self/task"))
    return Sample(saves, resident, descriptors, threads, sum(map(is_ours, gc.get_objects())))


def is_ours(thing: object) -> bool:
    return str(type(thing).__module__).startswith(("deepfreeze", "concurrent.futures"))


def one_save(trainer: Trainer, step: int, soak: Soak) -> None:
    """And what comes after it in this training: a step, or what tears or refuses the save."""
    trainer.forget_torn()
    if step % REATTACHED_EVERY == 0:
        trainer.reattach()
    if step % REFUSED_EVERY == 0:
        with refusing_disk():
            handle = trainer.save(step)
            trainer.ckpt.wait()
    else:
        handle = trainer.save(step)
        if step % TORN_EVERY == 0:
            trainer.tear()
    trainer.step()
    handle.durable.add_done_callback(lambda _: count(soak, handle))


def count(soak: Soak, handle: df.SaveHandle) -> None:
    """By the thread that completes the saves, one after the other."""
    word = outcome_of(handle)
    soak.outcomes[word] = soak.outcomes.get(word, 0) + 1
    status = handle.status()
    soak.guarded_bytes = max(soak.guarded_bytes, status.guarded_bytes)
    soak.fenced += status.fence_seconds > 0


def run_mode(mode: str, saves: int, seed: int, run: Path) -> Soak:
    """In this process."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    logging.getLogger("deepfreeze").setLevel(logging.CRITICAL)  # it would tell every failure
    soak = Soak(mode, saves)
    trainer = Trainer(run, mode)
    for step in range(1, saves + 1):
        one_save(trainer, step, soak)
        if step % max(1, saves // SAMPLES) == 0:
            trainer.ckpt.wait()
            soak.curve.append(take_sample(step))
            progress(step, saves, f"saves in mode {mode}")
    soak.restored = compare_newest(trainer, saves + 1)
    trainer.ckpt.close()
    return soak


def compare_newest(trainer: Trainer, step: int) -> str:
    """One more save, untouched: what is restored must be what the state was."""
    before = trainer.bytes()
    handle = trainer.save(step)
    trainer.step()
    handle.wait("durable")
    if trainer.ckpt.restore(trainer.state) != step or trainer.bytes() != before:
        return "different"
    return "equal"


def in_own_process(mode: str, options: argparse.Namespace, seed: int) -> Soak:
    """Fail points are armed when the package is loaded."""
    saves = options.saves // (RING_SHARE if mode == "ring" and options.mode == "all" else 1)
    command = [sys.executable, "-m", "tests.e2e.soak", "--child", "--mode", mode]
    command += ["--saves", str(saves), "--seed", str(seed)]
    command += ["--directory", str(options.directory)] if options.directory else []
    environment = {**os.environ, "DEEPFREEZE_FAIL": FAIL_POINTS}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"soak, mode {mode}: exit status {done.returncode}")
    figures = json.loads(done.stdout)
    return Soak(**{**figures, "curve": [Sample(**each) for each in figures["curve"]]})


def describe(soak: Soak) -> str:
    outcomes = ", ".join(f"{count} {word}" for word, count in sorted(soak.outcomes.items()))
    first, last = soak.after_warm_up()[0], soak.after_warm_up()[-1]
    rows = [
        ("mode", f"{soak.mode}, {soak.saves} saves: {outcomes}"),
        ("captured later", f"{soak.guarded_bytes / 1e6:.2f} MB a save, {soak.fenced} fenced"),
        ("newest", soak.restored),
    ]
    for name, most in soak.bounds().items():
        unit = 1e6 if name == "rss_bytes" else 1
        values = (getattr(first, name), getattr(last, name), soak.growth(name), most)
        numbers = [f"{value / unit:.1f}" if unit > 1 else str(value) for value in values]
        rows.append((name, "{} to {}, growth {} of at most {}".format(*numbers)))
    return "\n".join(f"{name:<16}{value}" for name, value in rows)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser("tests.e2e.soak", __doc__)
    parser.add_argument("--saves", type=int, default=10_000)
    parser.add_argument("--mode", choices=[*MODES, "all"], default="all")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.child:
        with scratch(options, "soak") as directory:
            soak = run_mode(options.mode, options.saves, options.seed, Path(directory) / "run")
        print(json.dumps(asdict(soak)))
        return 0
    seed = announce_seed(options)
    modes = MODES if options.mode == "all" else [options.mode]
    soaks = [in_own_process(mode, options, seed) for mode in modes]
    faults = [fault for soak in soaks for fault in soak.faults()]
    figures = {"seed": seed, "modes": [asdict(soak) for soak in soaks], "faults": faults}
    return conclude(options, "\n\n".join(map(describe, soaks)), figures, faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
