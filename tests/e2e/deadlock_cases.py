"""Programs in which a fence, or the end of the program, could wait for ever.

`python -m tests.e2e.deadlock_cases CASE RUN`, each in a process of its own: test_no_deadlock.py
arms the fail points, sets the time limit and compares the commits with the output of this.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import gc
import hashlib
import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

import deepfreeze as df
from examples.digest import tensor_bytes

WIDTH = 1800  # with AdamW's moments 39 MB
ARENA_BYTES = 8 << 20
STEPS = 4


@dataclass
class Run:
    """A training with one large layer, attached, and its output."""

    ckpt: df.Checkpointer
    mode: str
    model: nn.Linear = field(default_factory=lambda: nn.Linear(WIDTH, WIDTH, bias=False))
    handles: list[df.SaveHandle] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.optim = torch.optim.AdamW(self.model.parameters(), lr=1e-2, fused=True)
        self.state = {"model": self.model, "optim": self.optim}
        self.new_gradients()
        self.step()
        after_update = "early" in self.mode
        self.ckpt.attach(self.optim, "after_update" if after_update else "window")

    def step(self) -> None:
        """Waits in the fence, at once: a busy machine must not give the copier the time."""
        self.optim.step()
        self.new_gradients()

    def new_gradients(self) -> None:
        """Others each time, so that each step differs."""
        for parameter in self.model.parameters():
            parameter.grad = torch.randn_like(parameter)

    def save(self, step: int) -> df.SaveHandle:
        """Saves; the window is open when it returns. Reports the state that must be restored."""
        say(step=step, digest=digest_of(self.model, self.optim))
        early = "early" in self.mode
        handle = self.ckpt.step(step, self.state) if early else self.ckpt.save(step, self.state)
        assert handle is not None
        # A save that had failed before its capture began guards nothing.
        assert handle.status().guarded_bytes > 0 or handle.durable.done()
        self.handles.append(handle)
        return handle

    def tell_outcome(self) -> None:
        """After the last save: which steps failed, and of what."""
        errors = {handle.step: handle.durable.exception() for handle in self.handles}
        say(failed={step: str(error) for step, error in errors.items() if error is not None})
        say(fenced=sum(handle.status().fence_seconds > 0 for handle in self.handles))


def digest_of(model: nn.Module, optim: torch.optim.Optimizer) -> str:
    """The digest of all large tensors."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        for tensor in (parameter, optim.state[parameter]["exp_avg_sq"]):
            digest.update(tensor_bytes(tensor.detach()))
    return digest.hexdigest()


def say(**what: Any) -> None:
    """One line for the test."""
    print(json.dumps(what), flush=True)


def open_run(path: Path, mode: str) -> Run:
    """Modes: "ring" (a state larger than its memory), "early" (after_update), both or "window"."""
    torch.manual_seed(11)
    arena = ARENA_BYTES if "ring" in mode else None
    return Run(df.Checkpointer(path, profile="latency", arena_bytes_max=arena), mode)


# The cases


def loop(run: Run) -> None:
    """The window of each save is open when the next step comes; then the disk may fail."""
    for step in range(1, STEPS + 1):
        run.save(step)
        run.step()
    with contextlib.suppress(df.CheckpointError):  # it tells if no save has succeeded
        run.ckpt.close()
    run.tell_outcome()


def close_with_open_window(run: Run) -> None:
    run.save(1)
    run.ckpt.close()
    run.tell_outcome()


def end_with_open_window(run: Run) -> None:
    run.save(1)


def exit_with_open_window(run: Run) -> None:
    run.save(1)
    sys.exit(3)


def exception_in_training(run: Run) -> None:
    with run.ckpt:
        run.save(1)
        raise RuntimeError("the training failed")


def exception_inside_step(run: Run) -> None:
    """The fence has let the step pass; then it raises."""
    run.optim.register_step_pre_hook(raise_error)
    run.save(1)
    run.step()


def raise_error(*_: object) -> None:
    raise RuntimeError("the step failed")


def fork_and_step(run: Run) -> None:
    """Children step, and end in both ways, while the parent's window is open."""
    for step, leave in ((1, os._exit), (2, sys.exit)):
        run.save(step)
        child = os.fork()
        if child == 0:
            run.step()
            run.step()
            leave(0)
        _, status = os.waitpid(child, 0)
        say(child=os.waitstatus_to_exitcode(status))
        run.step()
    run.save(3)
    run.step()
    run.ckpt.close()
    run.tell_outcome()


def sigterm_in_window(run: Run) -> None:
    df.finish_on_sigterm(run.ckpt)
    run.save(1)
    os.kill(os.getpid(), signal.SIGTERM)
    say(survived=True)


def sigterm_in_fence(run: Run) -> None:
    """From another thread, while the main one waits in the fence for a slow disk."""
    df.finish_on_sigterm(run.ckpt)
    run.save(1)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
    for step in range(2, 1000):
        run.step()
        run.save(step)


def collect_with_open_window(run: Run) -> None:
    handle = run.save(1)
    del run.ckpt
    gc.collect()
    run.step()
    handle.wait("durable")
    run.tell_outcome()


def step_in_other_thread(run: Run) -> None:
    for step in range(1, STEPS + 1):
        run.save(step)
        thread = threading.Thread(target=run.step)
        thread.start()
        thread.join()
    run.ckpt.close()
    run.tell_outcome()


def fences_in_two_threads(run: Run) -> None:
    """The optimizer's thread and one that calls fence() wait for the same copy."""
    for step in range(1, STEPS + 1):
        run.save(step)
        thread = threading.Thread(target=run.ckpt.fence)
        thread.start()
        run.step()
        thread.join()
    run.ckpt.wait()
    run.ckpt.close()
    run.tell_outcome()


def wait_with_open_window(run: Run) -> None:
    for step in range(1, STEPS + 1):
        run.save(step)
        run.ckpt.wait()
        run.step()
    run.ckpt.close()
    run.tell_outcome()


def detach_with_open_window(run: Run) -> None:
    run.save(1)
    run.ckpt.detach(run.optim)
    run.step()
    run.ckpt.close()
    run.tell_outcome()


CASES: dict[str, Callable[[Run], None]] = {
    case.__name__: case
    for case in (
        *(loop, close_with_open_window, end_with_open_window, exit_with_open_window),
        *(exception_in_training, exception_inside_step, fork_and_step, sigterm_in_window),
        *(sigterm_in_fence, collect_with_open_window, step_in_other_thread),
        *(fences_in_two_threads, wait_with_open_window, detach_with_open_window),
    )
}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="tests.e2e.deadlock_cases", description=__doc__)
    parser.add_argument("case", choices=sorted(CASES))
    parser.add_argument("run", type=Path)
    parser.add_argument("--mode", default="window")
    options = parser.parse_args(arguments)
    # The stacks, when the time limit's SIGABRT comes. Its own timer would hang in forked children.
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    torch.set_num_threads(1)
    CASES[options.case](open_run(options.run, options.mode))


if __name__ == "__main__":
    main(sys.argv[1:])
