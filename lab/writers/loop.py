"""DeepFreeze's ways of saving, and the interface that all savers share.

A saver is made for one segment of training and closed after it. What its records say of a save is
complete after settle().
"""

import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch.optim import Optimizer

import deepfreeze as df
from lab.measure.files import agent_place

KEEP_LAST = 2  # checkpoints; peers delete older ones too
FLUSH_BYTES_PER_SECOND = 200_000_000  # to the second tier
FLUSH_SECONDS_MAX = 120.0


@dataclass
class SaveRecord:
    """One requested save; times in seconds."""

    step: int
    call_seconds: float = 0.0  # inside save() or step(), and in hooks that capture for it
    fence_seconds: float = 0.0  # training blocked later, until what this save needs was captured
    fence_reported_seconds: float | None = None  # the same by the saver's own account
    captured_seconds: float | None = None  # from the call; None: once the call returned
    stream_wait_seconds: float = 0.0  # a device waited in the fence, while its thread went on
    durable_seconds: float | None = None  # from the call to the commit
    committed: bool = False
    skipped: bool = False
    own_bytes: int | None = None  # written by this rank, where several save together
    error: str = ""

    @property
    def stall_seconds(self) -> float:
        return self.call_seconds + self.fence_seconds


class Saver:
    """Saves nothing: the base of all others, and the run without checkpoints."""

    name: ClassVar[str] = "none"
    title: ClassVar[str] = "no checkpoints"
    synced: ClassVar[str] = "-"  # what a power cut spares of a committed save
    in_backward: ClassVar[bool] = False  # which style of training it belongs to
    is_baseline: ClassVar[bool] = True

    # Of a training its saver knows more than measure.Training does: it is of its own framework.
    def __init__(self, training: Any, directory: Path, every: int) -> None:
        self.training = training
        self.directory = directory
        self.every = every
        self.records: list[SaveRecord] = []

    @classmethod
    def missing(cls) -> str:
        """Why it can't run here at all; empty where it can."""
        return ""

    def before_update(self) -> None:
        """Called before the optimizer's step."""

    def before_average(self) -> None:
        """Called before the averaged copy is changed."""

    def after_step(self, step: int) -> None:
        """Called after each step."""

    def drain(self) -> None:
        """Returns once every save is committed or failed, and old checkpoints are deleted."""

    def settle(self) -> None:
        """Completes the records; not part of the measured time."""

    def newest(self) -> Path | None:
        """Where the newest committed checkpoint is, after drain()."""
        return None

    def close(self) -> None:
        """Gives back threads and memory."""

    def restore(self, training: Any) -> None:
        """Brings the newest checkpoint into another training; after close()."""
        raise NotImplementedError(f"{self.name}: no restore into a training")


class NoneInBackward(Saver):
    """The baseline of after-update capture."""

    name = "none-in-backward"
    title = "no checkpoints *"
    in_backward = True


class DeepFreezeSaver(Saver):
    """What all modes of DeepFreeze have in common."""

    synced = "all"
    is_baseline = False
    profile: ClassVar[str | None] = None

    def __init__(self, training: Any, directory: Path, every: int) -> None:
        super().__init__(training, directory, every)
        self.state = {**training.state, "rng": df.RNG()}
        self.handles: list[tuple[SaveRecord, df.SaveHandle]] = []
        self.checkpointer = self.open()

    def open(self) -> df.Checkpointer:
        return df.Checkpointer(self.directory, keep=df.keep(last=KEEP_LAST), **self.options())

    def options(self) -> dict[str, Any]:
        return {} if self.profile is None else {"profile": self.profile}

    def after_step(self, step: int) -> None:
        if step % self.every != 0:
            return
        began = time.perf_counter()
        handle = self.checkpointer.save(step, self.state)
        self.note(step, handle, time.perf_counter() - began)

    def note(self, step: int, handle: df.SaveHandle | None, call_seconds: float) -> None:
        record = SaveRecord(step, call_seconds, skipped=handle is None)
        self.records.append(record)
        if handle is not None:
            self.handles.append((record, handle))
            began = time.perf_counter() - call_seconds

            def durable(_: object) -> None:
                record.durable_seconds = time.perf_counter() - began

            handle.local.add_done_callback(durable)

    def drain(self) -> None:
        self.checkpointer.wait()

    def settle(self) -> None:
        for record, handle in self.handles:
            status = handle.status()
            record.fence_reported_seconds = status.fence_seconds
            record.committed = status.local  # on the first tier; without others that is durable
            if not status.local:
                record.durable_seconds = None
            record.error = "" if status.error is None else str(status.error)

    def newest(self) -> Path | None:
        return max(self.directory.glob("step-*"), default=None)

    def close(self) -> None:
        self.checkpointer.close()

    def restore(self, training: Any) -> None:
        with df.Checkpointer(self.directory, read_only=True) as checkpointer:
            checkpointer.restore({**training.state, "rng": df.RNG()})


class Eager(DeepFreezeSaver):
    """Nothing attached: captured before save() returns."""

    name = "df-eager"
    title = "DeepFreeze eager, not attached"


class Window(DeepFreezeSaver):
    """Captured beside forward and backward, up to the fence before the next update.

    Fences are timed from outside, by hooks around DeepFreeze's own: all that training waits for.
    """

    name = "df-default"
    title = "DeepFreeze window, default"

    def __init__(self, training: Any, directory: Path, every: int) -> None:
        super().__init__(training, directory, every)
        self.hook_began = 0.0
        for optimizer in training.optimizers.values():
            optimizer.register_step_pre_hook(self.begin_hook)
            self.attach(optimizer)
            optimizer.register_step_pre_hook(self.end_fence)
        for module in training.guarded_modules:
            self.checkpointer.attach(module)

    def attach(self, optimizer: Optimizer) -> None:
        self.checkpointer.attach(optimizer)

    def before_average(self) -> None:
        self.begin_hook()
        self.checkpointer.fence()
        self.end_fence()

    def begin_hook(self, *_: object) -> None:
        self.hook_began = time.perf_counter()

    def end_fence(self, *_: object) -> None:
        """It was for the newest save: there is none in flight beside it."""
        if self.records:
            self.records[-1].fence_seconds += time.perf_counter() - self.hook_began


class WindowLatency(Window):
    """The profile with the least stall."""

    name = "df-latency"
    title = "DeepFreeze window, latency"
    profile = "latency"


class WindowThroughput(Window):
    """The profile with the least total time."""

    name = "df-throughput"
    title = "DeepFreeze window, throughput"
    profile = "throughput"


class WindowQuarter(Window):
    """In an arena of a quarter of the state, through which the rest streams."""

    name = "df-quarter"
    title = "DeepFreeze window, arena of a quarter"

    def options(self) -> dict[str, Any]:
        return {"arena_bytes_max": sum(one.nbytes for one in self.training.tensors()) // 4}


class WindowTier(Window):
    """With a second tier on the same device. Its flush goes on beside the next steps."""

    name = "df-tier"
    title = "DeepFreeze window, a second tier"

    def options(self) -> dict[str, Any]:
        far = df.tier(
            self.directory.with_name("far"), keep=df.keep(last=1), rate=FLUSH_BYTES_PER_SECOND
        )
        return {"tiers": [far]}

    def close(self) -> None:
        self.checkpointer.drain(FLUSH_SECONDS_MAX)  # so that it is not beside the next segment
        super().close()


class WindowCopy(Window):
    """One tier, and another program copies its checkpoints as fast as a flush is allowed to."""

    name = "df-copy"
    title = "DeepFreeze window, one tier that is copied by a plain program"

    def open(self) -> df.Checkpointer:
        far = self.directory.with_name("far")
        rate = str(FLUSH_BYTES_PER_SECOND)
        command = [sys.executable, str(Path(__file__).with_name("plain_copy.py"))]
        self.copier = subprocess.Popen(
            [*command, str(self.directory), str(far), rate], stdin=subprocess.PIPE
        )
        return super().open()

    def close(self) -> None:
        self.copier.communicate(timeout=FLUSH_SECONDS_MAX)
        super().close()
        if self.copier.returncode:
            raise RuntimeError("the copier failed")


class WindowAgent(WindowTier):
    """The same, and an agent that would finish a captured save."""

    name = "df-agent"
    title = "DeepFreeze window, a second tier and an agent"

    def options(self) -> dict[str, Any]:
        return {**super().options(), "agent": str(agent_place(self.directory))}

    def close(self) -> None:
        super().close()
        place = agent_place(self.directory)
        command = [sys.executable, "-m", "deepfreeze", "agent", "--drain", "--directory"]
        subprocess.run([*command, str(place)], check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(place)


class AfterUpdate(Window):
    """Each tensor captured right after its own optimizer's step, within backward."""

    name = "df-after-update"
    title = "DeepFreeze after-update *"
    in_backward = True

    def __init__(self, training: Any, directory: Path, every: int) -> None:
        self.seconds_for_next = 0.0
        super().__init__(training, directory, every)

    def options(self) -> dict[str, Any]:
        return {"every": df.every(steps=self.every)}

    def attach(self, optimizer: Optimizer) -> None:
        optimizer.register_step_post_hook(self.begin_hook)
        self.checkpointer.attach(optimizer, mode="after_update")
        optimizer.register_step_post_hook(self.end_capture)

    def end_capture(self, *_: object) -> None:
        """What is captured after an update is of the save to come."""
        self.seconds_for_next += time.perf_counter() - self.hook_began

    def after_step(self, step: int) -> None:
        began = time.perf_counter()
        handle = self.checkpointer.step(step, self.state)
        # Steps that don't save belong to the next save: there its capture is decided.
        self.seconds_for_next += time.perf_counter() - began
        if handle is not None or step % self.every == 0:
            self.note(step, handle, self.seconds_for_next)
            self.seconds_for_next = 0.0


DEEPFREEZE: tuple[type[Saver], ...] = (
    WindowLatency,
    WindowThroughput,
    Window,
    WindowQuarter,
    WindowTier,
    WindowCopy,
    WindowAgent,
    AfterUpdate,
    Eager,
)


class Attached(DeepFreezeSaver):
    """Attaches the parts of the training that need it. Its fences are those of DeepFreeze.

    A training that it is used with names that in `attached`.
    """

    name = "df-default"
    title = "DeepFreeze, default"

    def __init__(self, training: Any, directory: Path, every: int) -> None:
        super().__init__(training, directory, every)
        for each in training.attached:
            self.checkpointer.attach(each)

    def settle(self) -> None:
        super().settle()
        for record in self.records:
            record.fence_seconds = record.fence_reported_seconds or 0.0


class AttachedLatency(Attached):
    """The profile with the least stall."""

    name = "df-latency"
    title = "DeepFreeze, latency"
    profile = "latency"
