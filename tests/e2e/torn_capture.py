"""Torn captures: `python -m tests.e2e.torn_capture --trials 100 [--paranoid] [--seed S] [--json]`.

Every kind of writer changes an attached tensor without a fence: before the copy begins, while it
runs, or after the save was captured. Whatever happens, a checkpoint that is committed must hold
the state at save(). Changes that docs/guarantees.md promises to find must be reported, and no
change that comes after "captured" may be.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

import deepfreeze as df

from .command import announce_seed, conclude, in_own_process, make_parser, progress, scratch

MODULE = "tests.e2e.torn_capture"
PHASES = ("before", "during", "after")
# Each phase is a process of its own: the copier is slowed by the environment.
FAIL_POINTS = {
    "before": "capture.background=sleep:100",
    "during": "capture.piece=sleep:1",
    "after": "",
}
ROWS, WIDTH = 512, 512  # 1 MiB a tensor: 16 pieces

PhaseCounts: TypeAlias = dict[str, dict[str, int]]  # of words, by writer


class Net(nn.Module):
    """An embedding that renormalises its rows in forward, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(ROWS, WIDTH, max_norm=1.0)
        self.linear = nn.Linear(WIDTH, ROWS, bias=False)


class Run:
    """A state with every kind of guarded tensor, anew for each writer."""

    def __init__(self, directory: Path) -> None:
        self.net = Net()
        self.optim = torch.optim.Adam(self.net.parameters(), lr=1e-2, fused=True)
        self.ema = AveragedModel(self.net)
        self._fill_gradients()
        self.optim.step()
        self.twin = torch.optim.Adam(self.net.parameters(), lr=1e-2, fused=True)
        self.twin.state = self.optim.state  # the same memory, and no hook
        self.view = self.net.linear.weight.detach().numpy()
        self.state = {"net": self.net, "optim": self.optim, "ema": self.ema}
        self.ckpt = df.Checkpointer(directory, keep=df.keep(last=1), profile="latency")
        self.ckpt.attach(self.optim)
        self.ckpt.attach(self.ema)

    def _fill_gradients(self) -> None:
        for parameter in self.net.parameters():
            parameter.grad = torch.randn_like(parameter)

    def snapshot(self) -> dict[str, Tensor]:
        names = {f"net.{name}": tensor for name, tensor in self.net.state_dict().items()}
        names |= {f"ema.{name}": tensor for name, tensor in self.ema.state_dict().items()}
        return {name: tensor.clone() for name, tensor in names.items()}

    def forget_torn(self) -> None:
        """Else a tensor that was found torn once is copied at once, and no trial is left."""
        self.ckpt._lazy._guards.eager.clear()

    # The writers

    def no_grad(self, _: random.Random) -> None:
        with torch.no_grad():
            self.net.linear.weight.mul_(1.01)

    def data(self, _: random.Random) -> None:
        self.net.linear.weight.data.mul_(1.01)

    def numpy_view(self, _: random.Random) -> None:
        self.view *= 1.01

    def fused_step(self, _: random.Random) -> None:
        self._fill_gradients()
        self.twin.step()

    def ema_update(self, _: random.Random) -> None:
        with torch.no_grad():
            self.net.linear.weight.detach().clone()  # the average differs already
        self.ema.update_parameters(self.net)

    def ema_swap(self, _: random.Random) -> None:
        for live, mean in zip(self.net.parameters(), self.ema.module.parameters(), strict=True):
            kept = live.data.clone()
            live.data.copy_(mean.data)
            mean.data.copy_(kept)

    def embedding(self, draw: random.Random) -> None:
        with torch.no_grad():
            self.net.table.weight.data.mul_(1.5)  # so that forward has something to do
        self.net.table(torch.tensor([draw.randrange(ROWS) for _ in range(64)]))

    def numpy_element(self, draw: random.Random) -> None:
        self.view[draw.randrange(ROWS), draw.randrange(WIDTH)] += 1.0


# Writers that docs/guarantees.md promises to find in a capture that they tear; the last one only
# if every byte is watched.
PROMISED: dict[str, Callable[[Run, random.Random], None]] = {
    "no_grad": Run.no_grad,
    "data": Run.data,
    "numpy_view": Run.numpy_view,
    "fused_step": Run.fused_step,
    "ema_update": Run.ema_update,
    "ema_swap": Run.ema_swap,
    "embedding": Run.embedding,
}
WRITERS = {**PROMISED, "numpy_element": Run.numpy_element}


@dataclass
class Verdict:
    """The outcome of one save."""

    in_phase: bool  # the write came when it was meant to
    reported: bool
    committed: bool
    right: bool  # the committed state is the state at save()

    def word(self) -> str:
        if not self.in_phase:
            return "redrawn"
        if self.reported:
            return "reported"
        if not self.committed:
            return "failed"
        return "whole" if self.right else "wrong"


def trial(run: Run, step: int, writer: str, phase: str, draw: random.Random) -> Verdict:
    run.forget_torn()
    if writer == "embedding":
        WRITERS[writer](run, draw)  # the rows begin within the norm
        with torch.no_grad():
            run.net.table.weight.mul_(1.5)
    before = run.snapshot()
    handle = run.ckpt.save(step, run.state)
    assert handle is not None
    assert handle.status().guarded_bytes > 0, "nothing was captured later: the trial has no power"
    in_phase = wait_for_phase(handle, phase, draw)
    write(run, writer, draw)
    if phase != "after":
        in_phase = in_phase and not handle.captured.done()
    if phase == "before":
        in_phase = in_phase and copied_share(handle) <= 0
    error = handle.durable.exception()
    run.ckpt.wait()
    reported = isinstance(error, df.TornCaptureError)
    assert error is None or reported, error
    committed = run.ckpt.latest() == step
    return Verdict(in_phase, reported, committed, committed and holds(run.ckpt, step, before))


def write(run: Run, writer: str, draw: random.Random) -> None:
    if writer == "embedding":
        run.net.table(torch.tensor([draw.randrange(ROWS) for _ in range(64)]))
    else:
        WRITERS[writer](run, draw)


def wait_for_phase(handle: df.SaveHandle, phase: str, draw: random.Random) -> bool:
    if phase == "after":
        handle.wait("captured")
        return True
    if phase == "during":
        share = draw.uniform(0.05, 0.95)
        while copied_share(handle) < share and not handle.captured.done():
            time.sleep(0.0005)
    return True


def copied_share(handle: df.SaveHandle) -> float:
    """The share of the copied bytes in those that are captured after save()."""
    now = handle.status()
    return 1 - (now.bytes - now.bytes_copied) / now.guarded_bytes


def holds(ckpt: df.Checkpointer, step: int, expected: dict[str, Tensor]) -> bool:
    loaded = ckpt.load(step, keys=["net.*", "ema.*"])
    flat = {f"{top}.{name}": t for top in ("net", "ema") for name, t in loaded[top].items()}
    return all(torch.equal(flat[name], tensor) for name, tensor in expected.items())


def run_phase(phase: str, options: argparse.Namespace) -> PhaseCounts:
    """In this process."""
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    logging.getLogger("deepfreeze").setLevel(logging.CRITICAL)  # it would tell every failure
    counts: PhaseCounts = {}
    for number, writer in enumerate(WRITERS):
        draw = random.Random(f"{options.seed} {phase} {writer}")
        with scratch(options, "torn") as directory:
            run = Run(Path(directory) / "run")
            counts[writer] = run_writer(run, writer, phase, options.trials, draw)
        progress(number + 1, len(WRITERS), f"writers {phase}")
    return counts


def run_writer(
    run: Run, writer: str, phase: str, trials: int, draw: random.Random
) -> dict[str, int]:
    words: Counter[str] = Counter()
    step = 0
    while words.total() - words["redrawn"] < trials and words["redrawn"] < 5 * trials:
        step += 1
        words[trial(run, step, writer, phase, draw).word()] += 1
    with contextlib.suppress(df.TornCaptureError):  # it tells if no save has succeeded
        run.ckpt.close()
    return dict(words)


def run_phases(options: argparse.Namespace, seed: int) -> dict[str, PhaseCounts]:
    """Each in a process of its own."""
    more = {"DEEPFREEZE_PARANOID": "1" if options.paranoid else "0"}
    counts = {}
    for phase in PHASES:
        part = {"phase": phase, "trials": options.trials, "seed": seed}
        counts[phase] = in_own_process(MODULE, part, options, FAIL_POINTS[phase], **more)
    return counts


def faults(counts: dict[str, PhaseCounts], trials: int, paranoid: bool) -> list[str]:
    """The broken promises."""
    found = []
    for phase, writers in counts.items():
        for writer, words in writers.items():
            watched = paranoid or writer in PROMISED
            if words.get("wrong") and watched:
                found.append(f"{writer} {phase}: {words['wrong']} committed with torn bytes")
            if words.get("failed"):
                found.append(f"{writer} {phase}: {words['failed']} failed for another reason")
            if phase == "after" and words.get("reported"):
                found.append(f"{writer} after: {words['reported']} reported without cause")
            if phase == "before" and watched and words.get("reported", 0) < trials:
                found.append(f"{writer} before: {words.get('reported', 0)} of {trials} reported")
            if sum(words.values()) - words.get("redrawn", 0) < trials:
                found.append(f"{writer} {phase}: {words} are not {trials} trials")
    return found


def describe(counts: dict[str, PhaseCounts]) -> str:
    lines = [f"{'writer':<15}" + "".join(f"{phase:<34}" for phase in counts)]
    for writer in WRITERS:
        cells = []
        for words in (counts[phase][writer] for phase in counts):
            told = sorted(item for item in words.items() if item[0] != "redrawn")
            cells.append(f"{', '.join(f'{count} {word}' for word, count in told):<34}")
        lines.append(f"{writer:<15}" + "".join(cells))
    return "\n".join(lines)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser(MODULE, __doc__)
    parser.add_argument("--trials", type=int, default=100, help="of each writer in each phase")
    parser.add_argument("--paranoid", action="store_true", help="with DEEPFREEZE_PARANOID=1")
    parser.add_argument("--phase", choices=PHASES, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.phase:
        print(json.dumps(run_phase(options.phase, options)))
        return 0
    seed = announce_seed(options)
    counts = run_phases(options, seed)
    broken = faults(counts, options.trials, options.paranoid)
    figures = {"seed": seed, "counts": counts, "faults": broken}
    return conclude(options, describe(counts), figures, broken)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
