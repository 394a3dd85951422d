"""Soak: `python -m tests.e2e.soak --saves 10000 [--mode window|ring] [--leak L] [--json]`.

Saves in a loop while a small model trains, attached, two checkpoints kept. Some saves are torn on
purpose, some find a disk that fails. After the warm-up nothing may grow: memory, descriptors,
threads, objects. The last committed checkpoint must equal the state at its save.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import logging
import os
import resource
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import median

import torch
from torch import nn

import deepfreeze as df
from examples.digest import tensor_bytes

from .command import announce_seed, conclude, in_own_process, make_parser, progress, scratch
from .sample import EXACT_MALLOC, Sample, take_sample

MODULE = "tests.e2e.soak"
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

# The median of the last third of the samples after the warm-up may exceed that of the first by:
# heap: one of Python's threads, should it begin late (5.5 to 6 KB), and errors of the last save;
#   besides, one rise and one fall are left out: the 31.6 KB that torch keeps for each thread that
#   has called it, here or there the thread that completes saves, early, late or until it ends;
# rss: one arena of Python's allocator (1 MiB), and as much of code and stacks touched late;
# threads: the completer, which comes and goes;
# objects: the last save leaves some, by its outcome: 5 were seen.
# One third lies 13 saves after the other in the smallest soak, so that one object a save is found.
GROWTH_MAX = {
    "heap_bytes": 8 << 10,
    "rss_bytes": 2 << 20,
    "descriptors": 0,
    "threads": 1,
    "objects": 8,
}


@dataclass
class Soak:
    """One mode's curve, and the outcomes of its saves."""

    mode: str
    saves: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    guarded_bytes: int = 0  # of the last whole save
    fenced: int = 0
    curve: list[Sample] = field(default_factory=list)
    restored: str = ""  # "equal" if the newest checkpoint is the state at its save()

    def after_warm_up(self) -> list[Sample]:
        return [each for each in self.curve if each.saves >= WARM_UP_SHARE * self.saves]

    def growth(self, name: str) -> int:
        """From the first third after the warm-up to the last, by their medians."""
        values = [getattr(each, name) for each in self.after_warm_up()]
        if name == "heap_bytes":
            values = without_jumps(values)
        third = max(1, len(values) // 3)
        return int(median(values[-third:]) - median(values[:third]))

    def faults(self) -> list[str]:
        faults = [
            f"{name} grew by {self.growth(name)}, more than {most}"
            for name, most in GROWTH_MAX.items()
            if self.growth(name) > most
        ]
        if self.restored != "equal":
            faults.append(f"the newest checkpoint is {self.restored or 'missing'}")
        if self.outcomes.get("other"):
            faults.append(f"{self.outcomes['other']} saves failed for no cause of ours")
        if self.guarded_bytes == 0 or self.fenced == 0:
            faults.append("nothing was captured after save(): the test has no power")
        return [f"{self.mode}: {fault}" for fault in faults]


def without_jumps(values: list[int]) -> list[int]:
    """The largest rise and the largest fall are taken out of all values that follow them."""
    steps = [after - before for before, after in pairwise(values)]
    for jump in {steps.index(max(steps)), steps.index(min(steps))}:
        steps[jump] = 0
    return list(accumulate(steps, initial=values[0]))


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
        """Otherwise tensors that were once torn would be copied at once, and none would be torn."""
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


def one_save(trainer: Trainer, step: int, soak: Soak) -> df.SaveHandle:
    """One save and the next act of this training: a step, or a fault that tears or refuses it."""
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
    return handle


def count(soak: Soak, handle: df.SaveHandle) -> None:
    """Called by the thread that completes the saves, one after the other."""
    word = outcome_of(handle)
    soak.outcomes[word] = soak.outcomes.get(word, 0) + 1
    status = handle.status()
    soak.guarded_bytes = max(soak.guarded_bytes, status.guarded_bytes)
    soak.fenced += status.fence_seconds > 0


# Negative controls: objects that are kept for each save.
LEAKS: dict[str, Callable[[df.SaveHandle], object]] = {
    "bytes": lambda _: ctypes.create_string_buffer(4096),
    "handle": lambda handle: handle,
    "native": lambda handle: handle._native,
    "descriptor": lambda _: os.open("/", os.O_RDONLY),
}


def run_mode(mode: str, options: argparse.Namespace, run: Path) -> Soak:
    """In this process."""
    saves = options.saves
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    logging.getLogger("deepfreeze").setLevel(logging.CRITICAL)  # it would tell every failure
    soak = Soak(mode, saves)
    trainer = Trainer(run, mode)
    leaked = []
    for step in range(1, saves + 1):
        handle = one_save(trainer, step, soak)
        if options.leak != "none":
            leaked.append(LEAKS[options.leak](handle))
        if step % max(1, saves // SAMPLES) == 0:
            trainer.ckpt.wait()
            soak.curve.append(take_sample(step))
            progress(step, saves, f"saves in mode {mode}")
    soak.restored = compare_newest(trainer, saves + 1)
    trainer.ckpt.close()
    return soak


def compare_newest(trainer: Trainer, step: int) -> str:
    """One more save, undisturbed: the restored state must equal the state at the save."""
    before = trainer.bytes()
    handle = trainer.save(step)
    trainer.step()
    handle.wait("durable")
    if trainer.ckpt.restore(trainer.state) != step or trainer.bytes() != before:
        return "different"
    return "equal"


def run_modes(options: argparse.Namespace, seed: int) -> list[Soak]:
    """Each in a process of its own."""
    soaks = []
    for mode in MODES if options.mode == "all" else [options.mode]:
        share = RING_SHARE if mode == "ring" and options.mode == "all" else 1
        part = {"part": mode, "saves": options.saves // share, "seed": seed, "leak": options.leak}
        figures = in_own_process(MODULE, part, options, FAIL_POINTS, **EXACT_MALLOC)
        curve = [Sample(**each) for each in figures["curve"]]
        soaks.append(Soak(**{**figures, "curve": curve}))
    return soaks


def describe(soak: Soak) -> str:
    outcomes = ", ".join(f"{count} {word}" for word, count in sorted(soak.outcomes.items()))
    first, last = soak.after_warm_up()[0], soak.after_warm_up()[-1]
    rows = [
        ("mode", f"{soak.mode}, {soak.saves} saves: {outcomes}"),
        ("captured later", f"{soak.guarded_bytes / 1e6:.2f} MB a save, {soak.fenced} fenced"),
        ("newest", soak.restored),
    ]
    for name, most in GROWTH_MAX.items():
        unit = 1e6 if name.endswith("_bytes") else 1
        values = (getattr(first, name), getattr(last, name), soak.growth(name), most)
        numbers = [f"{value / unit:.3f}" if unit > 1 else str(value) for value in values]
        rows.append((name, "{} to {}, growth {} of at most {}".format(*numbers)))
    return "\n".join(f"{name:<16}{value}" for name, value in rows)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser(MODULE, __doc__)
    parser.add_argument("--saves", type=int, default=10_000)
    parser.add_argument("--mode", choices=[*MODES, "all"], default="all")
    parser.add_argument("--leak", choices=["none", *LEAKS], default="none")
    parser.add_argument("--part", choices=MODES, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.part:
        with scratch(options, "soak") as directory:
            soak = run_mode(options.part, options, Path(directory) / "run")
        print(json.dumps(asdict(soak)))
        return 0
    seed = announce_seed(options)
    soaks = run_modes(options, seed)
    faults = [fault for soak in soaks for fault in soak.faults()]
    figures = {"seed": seed, "modes": [asdict(soak) for soak in soaks], "faults": faults}
    return conclude(options, "\n\n".join(map(describe, soaks)), figures, faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
