"""The device that all of this runs on, its name, and the speed of its link to the host."""

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import torch

from lab.measure import loop_summary as summary
from lab.measure.loop import Experiment, Segment
from lab.measure.loop_summary import spread
from lab.measure.machine import cpu_model
from lab.measure.progress import Follower
from lab.measure.usage import forget_peak, memory_bytes, peak_bytes
from lab.writers.loop import Saver, SaveRecord

LINK_PASSES = 10
CUDA = "cuda"
ASK_DRIVER = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")


def missing(device: str) -> str:
    """Why it can't be used; empty where it can."""
    if device != CUDA or torch.cuda.is_available():
        return ""
    return (
        f"torch {torch.__version__} finds no CUDA device here; "
        "`--device cpu --quick` tries all of it without one"
    )


def describe(device: str) -> dict[str, Any]:
    if device != CUDA:
        return {"name": f"no GPU: {cpu_model()}"}
    properties = torch.cuda.get_device_properties(0)
    return {
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "capability": f"{properties.major}.{properties.minor}",
        "driver": driver(),
        "cuda": torch.version.cuda,
    }


def driver() -> str:
    try:
        done = subprocess.run(ASK_DRIVER, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.split()[0] if done.stdout else "unknown"


def event() -> torch.cuda.Event:
    """On the current stream, now."""
    made = torch.cuda.Event(enable_timing=True)
    made.record()
    return made


def seconds_between(began: torch.cuda.Event, ended: torch.cuda.Event) -> float:
    """Waits for the later one."""
    ended.synchronize()
    return float(began.elapsed_time(ended)) / 1e3


@dataclass(frozen=True)
class Link:
    """Plain copies from the device into pinned memory; without a device, of the host's memory."""

    gb_per_second: list[float]  # of each
    resident: float | None  # share of the pinned memory that counts as the process's own


def link(device: str, nbytes: int) -> Link:
    on_device = device == CUDA
    source = torch.zeros(nbytes, dtype=torch.uint8, device=device)
    before = memory_bytes("VmRSS")
    target = torch.zeros(nbytes, dtype=torch.uint8, pin_memory=on_device)
    resident = (memory_bytes("VmRSS") - before) / nbytes if on_device else None
    copy = copy_seconds_by_events if on_device else copy_seconds_by_clock
    copy(target, source)  # the first one also wakes the link
    return Link([nbytes / 1e9 / copy(target, source) for _ in range(LINK_PASSES)], resident)


def copy_seconds_by_events(target: torch.Tensor, source: torch.Tensor) -> float:
    began = event()
    target.copy_(source, non_blocking=True)
    return seconds_between(began, event())


def copy_seconds_by_clock(target: torch.Tensor, source: torch.Tensor) -> float:
    began = time.perf_counter()
    target.copy_(source)
    return time.perf_counter() - began


# The time that a part may take: one that would not fit is not begun, one that is late is ended.


class OutOfTime(BaseException):
    """Raised in the main thread when the time is over; like an interrupt, nobody's failure."""


def out_of_time(*_: object) -> NoReturn:
    raise OutOfTime


class Budget:
    def __init__(self, minutes: float) -> None:
        self.ends = time.monotonic() + 60 * minutes
        self.took: dict[str, float] = {}  # seconds at most, of each kind of work

    def left_seconds(self) -> float:
        return max(0.0, self.ends - time.monotonic())

    def fits(self, work: str) -> bool:
        """As far as is known from earlier work of this kind."""
        return self.took.get(work, 0.0) < self.left_seconds()

    @contextmanager
    def timed(self, work: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.took[work] = max(self.took.get(work, 0.0), time.monotonic() - began)

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """OutOfTime comes out of the block where it takes longer."""
        before = signal.signal(signal.SIGALRM, out_of_time)
        signal.setitimer(signal.ITIMER_REAL, max(self.left_seconds(), 1e-3))
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


# Results as lines of JSON, one a row, each written when it is known: a run may end early.


Row = dict[str, Any]


class Lines:
    def __init__(self, path: Path, append: bool = False) -> None:
        self.file = path.open("a" if append else "w")

    def add(self, kind: str, row: Row) -> None:
        self.file.write(json.dumps({"kind": kind, **row}, separators=(",", ":")) + "\n")
        self.file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.file.close()


def read(path: Path) -> list[Row]:
    """Empty where that part has not been run."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def of_kind(rows: list[Row], kind: str) -> list[Row]:
    return [row for row in rows if row["kind"] == kind]


# The memory that a segment takes on the host and on the device, at its peak.


@dataclass(frozen=True)
class Peaks:
    host_bytes: int  # above the process before the segment; with the processes that it started
    device_bytes: int | None  # allocated by torch, training included


class Meter:
    """Follows the segments of an experiment. The memory of one is known after its last step.

    Not later: a saver ends its processes when it is closed. What the last save takes was taken
    before, by those of the warm-up.
    """

    def __init__(self, steps: int, device: str) -> None:
        self.steps = steps
        self.device = device
        self.follower = Follower(steps)
        self.peaks: Peaks | None = None

    def __call__(self, label: str) -> Callable[[int], None]:
        give_back(self.device)
        self.peaks = None
        before = memory_bytes("VmRSS")
        forget_peak()
        show = self.follower(label)

        def follow(step: int) -> None:
            show(step)
            if step == self.steps:
                self.peaks = Peaks(peak_bytes() - before, device_peak(self.device))

        return follow


def give_back(device: str) -> None:
    """The memory of both kinds that torch keeps for later; garbage is collected before."""
    if device == CUDA:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        empty_host_cache()
        torch.cuda.reset_peak_memory_stats()


def empty_host_cache() -> None:
    """By its name in torch 2.11 where it has none yet in torch.accelerator."""
    named = getattr(torch.accelerator, "empty_host_cache", None)
    (named or torch._C._host_emptyCache)()


def device_peak(device: str) -> int | None:
    return torch.cuda.max_memory_allocated() if device == CUDA else None


# From segments to one row a saver, shaped as those of lab/measure/alone.py.


LINK_TARGET = 0.9
STALL_MS_TARGET = 5.0
OURS = "df"
RUN_TIME_TARGET, RUN_TIME_EVERY = 1.02, 4
# A smaller state is copied in the time that a callback in Python may take to say so.
LARGE_STATE_BYTES = 10_000_000_000
COUNTED = (
    "saver", "title", "status", "faults", "saves_committed", "saves_requested", "stall_worst_is",
)  # fmt: skip


@dataclass(frozen=True)
class Taken:
    """One segment, and the measurements around it."""

    segment: Segment
    peaks: Peaks | None
    link: float  # GB/s in that round

    @property
    def first(self) -> SaveRecord:
        """It found none in flight, so that it waited for nothing but itself."""
        return self.segment.saves[0]

    def per_second(self, seconds: float | None) -> float | None:
        return self.segment.state_bytes / 1e9 / seconds if seconds else None

    def to_host(self) -> float | None:
        found = self.first.captured_seconds
        return self.per_second(self.first.call_seconds if found is None else found)


Pair = tuple[Taken, Taken]  # one, and the loop without checkpoints of its round


def rows(experiment: Experiment, taken: list[Taken]) -> list[Row]:
    segments = [one.segment for one in taken]
    return [row(experiment, each, taken) for each in summary.rows(experiment, segments)]


def row(experiment: Experiment, counted: summary.Row, taken: list[Taken]) -> Row:
    good = [one for one in taken if not one.segment.fault]
    mine = [one for one in good if one.segment.saver == counted["saver"]]
    worst = counted["stall_worst_seconds"]
    return {
        "workload": experiment.name,
        "every": experiment.every,
        **{name: counted[name] for name in COUNTED},
        "rounds": counted["rounds_good"],
        "state_bytes": max((one.segment.state_bytes for one in mine), default=0),
        "stall_worst_ms": None if worst is None else worst * 1e3,
        "figures": figures(experiment.every, mine, paired(good, mine)),
    }


def paired(good: list[Taken], mine: list[Taken]) -> list[Pair]:
    rounds = {one.segment.round_index: one for one in good if one.segment.saver == Saver.name}
    found = [(one, rounds.get(one.segment.round_index)) for one in mine]
    return [(one, other) for one, other in found if other is not None and other is not one]


def figures(every: int, mine: list[Taken], pairs: list[Pair]) -> dict[str, Any]:
    """Each a spread, or None where there is nothing to measure."""
    saving = [one for one in mine if one.segment.saves]
    saves = [save for one in saving for save in one.segment.saves]
    found: dict[str, Iterable[float | None]] = {
        "step_ms": (steady(one, every) * 1e3 for one in mine),
        "run_time_ratio": (steady(one, every) / steady(none, every) for one, none in pairs),
        "until_durable_ratio": (one.segment.seconds / none.segment.seconds for one, none in pairs),
        "stall_ms": (save.stall_seconds * 1e3 for save in saves),
        "stream_wait_ms": (save.stream_wait_seconds * 1e3 for save in saves),
        "to_host_gb_per_second": (one.to_host() for one in saving),
        "to_host_of_link": (over(one.to_host(), one.link) for one in saving),
        "to_disk_gb_per_second": (one.per_second(one.first.durable_seconds) for one in saving),
        "host_peak_bytes": (peak(one, host) for one in mine),
        "device_peak_bytes": (peak(one, device) for one in mine),
        "host_above_bytes": (above(pair, host) for pair in pairs),
        "device_above_bytes": (above(pair, device) for pair in pairs),
    }
    spreads = {
        name: spread([value for value in values if value is not None])
        for name, values in found.items()
    }
    return {name: None if one is None else asdict(one) for name, one in spreads.items()}


def steady(one: Taken, every: int) -> float:
    """Seconds a step from the first measured save on, the wait for the last one left out.

    All periods are alike then: the save before goes on in them, and one is made at their end.
    """
    steps = one.segment.step_seconds[every:]
    return sum(steps) / len(steps)


def over(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit


def host(peaks: Peaks) -> int | None:
    return peaks.host_bytes


def device(peaks: Peaks) -> int | None:
    return peaks.device_bytes


def peak(one: Taken, which: Callable[[Peaks], int | None]) -> int | None:
    return None if one.peaks is None else which(one.peaks)


def above(pair: Pair, which: Callable[[Peaks], int | None]) -> int | None:
    """The memory that a saver takes beside that of the loop without it."""
    one, none = (peak(each, which) for each in pair)
    return None if one is None or none is None else one - none


def targets(experiment: Experiment, found: list[Row]) -> list[Row]:
    """The promises of DeepFreeze, as far as this experiment can show them."""
    ours = next((one for one in found if one["saver"] == OURS), None)
    if ours is None:
        return []
    measured: list[tuple[str, float | None, str, float]] = []
    if max(each["state_bytes"] for each in found) >= LARGE_STATE_BYTES:
        rate, stall = median(ours, "to_host_of_link"), f"stall in ms, {ours['stall_worst_is']}"
        measured.append(("to host, of the link, median", rate, ">=", LINK_TARGET))
        measured.append((stall, ours["stall_worst_ms"], "<=", STALL_MS_TARGET))
    if experiment.every == RUN_TIME_EVERY:
        ratio = median(ours, "run_time_ratio")
        measured.append(("run time over the loop's alone, median", ratio, "<=", RUN_TIME_TARGET))
    place = {"workload": experiment.name, "every": experiment.every}
    return [{**place, **judged(*each)} for each in measured]


def median(row: Row, name: str) -> float | None:
    figure = row["figures"][name]
    return None if figure is None else float(figure["median"])


def judged(what: str, measured: float | None, sense: str, bound: float) -> Row:
    """Not met where nothing was measured."""
    met = measured is not None and (measured >= bound if sense == ">=" else measured <= bound)
    return {"what": what, "measured": measured, "sense": sense, "bound": bound, "met": met}
