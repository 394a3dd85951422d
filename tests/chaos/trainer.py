"""A process that saves one checkpoint after another, and reports begun and safe ones.

It imports deepfreeze itself: fail points are armed when the package is loaded, and the parent,
which is forked for each life, must not have it.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import os
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from .children import Say
from .state import Live, Point, World, digests_of_tree

if TYPE_CHECKING:
    import deepfreeze as df

TRAINING_SECONDS = 0.004  # of one step, its own work apart
WRONG_EVERY = 3  # saves of the negative control
FENCED_MAX = 3  # saves that are refused because another has taken over; then it gives up


@dataclass(frozen=True)
class Plan:
    """One life of the trainer."""

    run: Path
    world: World
    life: int
    steps: int = 0  # to do; 0: until it is killed
    keep: int = 4
    back: int = 0  # so many checkpoints of the line before the newest is restored
    fail_points: str = ""
    io: str = ""  # DEEPFREEZE_IO
    lazy: bool = True  # captured behind training
    refused_every: int = 0  # each so many saves, no file may grow: EFBIG, from the system itself
    lie: str = ""  # negative controls: "byte" or "early"


def train(plan: Plan, say: Say) -> None:
    """Restores or starts, then saves after every step."""
    os.environ["DEEPFREEZE_FAIL"] = plan.fail_points
    if plan.io:
        os.environ["DEEPFREEZE_IO"] = plan.io
    import deepfreeze as df

    share_small_files()
    torch.set_num_threads(1)
    logging.getLogger("deepfreeze").setLevel(logging.ERROR)  # fallbacks are reported below
    try:
        ckpt = df.Checkpointer(
            plan.run,
            keep=df.keep(last=plan.keep),
            profile="latency",
            agent=Path(__file__) / "none",  # none can be there, but all that it needs is written
            near="node",  # alone it changes nothing but the records of its directory
        )
        live = Live(plan.world)
        start = restore(plan, ckpt, live, say)
    except df.CheckpointError as error:
        return say("refused", code=error.code, message=str(error))
    if plan.lazy:
        ckpt.attach(live.optim)
    save_all(plan, ckpt, live, start, say)
    ckpt.close()
    say("ended")


def share_small_files() -> None:
    """Also these states are large enough for it: users have no such option."""
    from deepfreeze import _core

    small = functools.partial(_core.Engine, reuse_bytes_min=1)
    _core.Engine = small  # type: ignore[assignment, misc]


def restore(plan: Plan, ckpt: df.Checkpointer, live: Live, say: Say) -> int:
    """Restores; the step to continue from. Reports its source, and the state in memory now."""
    chosen = step_back(ckpt, plan.back) if plan.back else None
    step = ckpt.restore(live.state, step=chosen)
    report = ckpt.last_restore
    if step is None or report is None:
        say("restored", point=None, digests={}, fell_back=[], chosen=False)
        return 0
    point = live.point()
    assert point.step == step, f"restore says {step}, the state says {point}"
    say(
        "restored",
        point=[point.life, point.step],
        digests=live.digests(),
        fell_back=report.fell_back_from,
        chosen=chosen is not None,
    )
    return step


def step_back(ckpt: df.Checkpointer, back: int) -> int | None:
    """So many checkpoints of the line before its newest."""
    steps = ckpt.steps()
    return steps[max(0, len(steps) - 1 - back)] if steps else None


def save_all(plan: Plan, ckpt: df.Checkpointer, live: Live, start: int, say: Say) -> None:
    fenced: list[int] = []
    last = start + plan.steps if plan.steps else None
    for step in itertools.count(start + 1):
        if last is not None and step > last:
            break
        point = Point(plan.life, step)
        live.advance(point)
        with refusing_disk(step, plan.refused_every):
            handle = save(plan, ckpt, live, point, say)
            if plan.refused_every:
                ckpt.wait()
        handle.durable.add_done_callback(
            functools.partial(tell, say, point, handle, fenced, plan.lie)
        )
        if len(fenced) >= FENCED_MAX:
            break
        time.sleep(TRAINING_SECONDS)
    ckpt.wait()


def save(plan: Plan, ckpt: df.Checkpointer, live: Live, point: Point, say: Say) -> df.SaveHandle:
    if plan.lie == "byte" and point.step % WRONG_EVERY == 0:
        live.spoil()
    say("begun", life=point.life, step=point.step)
    if plan.lie == "early":
        say("durable", life=point.life, step=point.step)
    handle = ckpt.save(point.step, live.state, tags={"life": str(point.life)})
    assert handle is not None
    return handle


def tell(
    say: Say, point: Point, handle: df.SaveHandle, fenced: list[int], lie: str, _: object
) -> None:
    """Called by the thread that completes saves, in their order."""
    error = handle.durable.exception()
    if error is not None:
        code = getattr(error, "code", type(error).__name__)
        say("failed", life=point.life, step=point.step, code=code, message=str(error))
        if code == "fenced":
            fenced.append(point.step)
    elif lie != "early":
        say("durable", life=point.life, step=point.step)


@contextlib.contextmanager
def refusing_disk(step: int, every: int) -> Iterator[None]:
    """No file may grow beyond one page, at each so many steps."""
    if not every or step % every:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.getpagesize(), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def look(run: Path, say: Say) -> None:
    """Loads the newest, as a reader does: nothing is claimed."""
    import deepfreeze as df

    logging.getLogger("deepfreeze").setLevel(logging.ERROR)
    with df.Checkpointer(run) as ckpt:
        tree = ckpt.load()
    say("loaded", point=[tree["at"]["life"], tree["at"]["step"]], digests=digests_of_tree(tree))
