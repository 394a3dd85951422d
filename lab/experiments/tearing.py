"""Whether a snapshot that is written behind training is of one step.

Every number of the state is 1 at first, and each update adds 1 to all, in place, as soon as the
library allows that and until it says that the snapshot is committed. So what a snapshot holds
shows of which steps it is.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lab.measure.case import Case, Place, Plan
from lab.measure.program import FRAMEWORKS, OWN, PEERS, ask, python
from lab.measure.row import Row
from lab.measure.run import failure, status_of_text
from lab.writers.menu import SAVERS

TENSORS, BYTES = 12, 48 << 20
BYTES_MORE = 192 << 20  # for what copies these in less time than an update takes
BYTES_ONE = 640 << 20  # as in NT3: beyond 512 MiB torchsnapshot writes a tensor in pieces
SECONDS_MAX = 600.0

CONSISTENT, TORN, REFUSED = "consistent", "torn", "refused"
OWN_SAVERS = "lab.writers.torch_savers"
OWN_KINDS = ("TorchSaveThread", "DeepFreezeAfterUpdate")


@dataclass(frozen=True)
class Writer:
    """As one of lab/writers (`saver`), or one that is tried here alone; the kind of update."""

    name: str
    saver: str
    update: str  # of lab.programs.tearing
    title: str = ""
    kind: str = ""  # of the study's own
    waits: bool = True  # for what its library asks for before the state is changed
    races: bool = False  # what it does depends on which is quicker: tried more often
    bytes: int = BYTES
    tensors: int = TENSORS

    def attempts(self, *, quick: bool) -> int:
        return (3 if self.races else 1) if quick else (8 if self.races else 4)

    def as_json(self) -> dict[str, Any]:
        entry = SAVERS[self.saver]
        own = self.kind in OWN_KINDS
        module, kind = OWN_SAVERS if own else entry.module, self.kind or entry.kind
        return {"name": self.name, "module": module, "kind": kind,
                "update": self.update, "waits": self.waits,
                "tensors": self.tensors, "bytes": self.bytes}  # fmt: skip


@dataclass(frozen=True)
class Group:
    """What one process does."""

    framework: str
    environment: str
    writers: tuple[Writer, ...]
    start_seconds: float
    attempt_seconds: float  # about

    @property
    def name(self) -> str:
        return f"{self.framework}/{self.environment}" if self.environment else self.framework


PAST_FENCE = "attached, updated past the fence"
GROUPS = (
    Group(
        "pytorch", OWN,
        (
            Writer("torch-save-thread", "torch-save", "torch_in_place",
                   "torch.save in a thread, of the live tensors", "TorchSaveThread", races=True),
            Writer("dcp-async", "dcp-async", "torch_in_place"),
            Writer("dcp-async-reused", "dcp-async-reused", "torch_in_place"),
            Writer("dcp-async-beside", "dcp-async-reused", "torch_in_place",
                   "dcp.async_save, staged in a thread", "DcpAsyncBeside"),
            Writer("df", "df", "torch_in_place", "DeepFreeze, nothing attached"),
            Writer("df-attached", "df-latency", "torch_optimizer",
                   "DeepFreeze, optimizer attached", waits=False),
            Writer("df-past-fence", "df-latency", "torch_in_place",
                   f"DeepFreeze, {PAST_FENCE}", waits=False, races=True, bytes=BYTES_MORE),
            Writer("df-after-update", "df-latency", "torch_backward",
                   "DeepFreeze, mode after_update", "DeepFreezeAfterUpdate"),
        ),
        3.0, 0.3,
    ),
    Group(
        "pytorch", PEERS,
        (
            Writer("torchsnapshot-async", "torchsnapshot-async", "torch_in_place"),
            Writer("torchsnapshot-async", "torchsnapshot-async", "torch_in_place",
                   bytes=BYTES_ONE, tensors=1),
            Writer("torch-checkpointing", "torch-checkpointing", "torch_in_place"),
        ),
        4.0, 2.0,
    ),
    Group(
        "chainer", FRAMEWORKS,
        (
            *(
                Writer(name, name, "chainer_in_place")
                for name in ("chainer-simple", "chainer-process")
            ),
            *(
                Writer(name, name, "chainer_in_place", races=True)
                for name in ("chainer-thread", "chainer-thread-queue", "chainer-process-queue")
            ),
            Writer("df-chainer", "df-chainer", "chainer_in_place",
                   "DeepFreeze, Chainer, nothing attached"),
            Writer("df-chainer-attached", "df-chainer-latency", "chainer_optimizer",
                   "DeepFreeze, Chainer, optimizer attached", waits=False),
            Writer("df-chainer-past-fence", "df-chainer-latency", "chainer_in_place",
                   f"DeepFreeze, Chainer, {PAST_FENCE}", waits=False, races=True, bytes=BYTES_MORE),
        ),
        2.0, 0.17,
    ),
    Group(
        "tensorflow", FRAMEWORKS,
        (
            Writer("tensorflow-async", "tensorflow-async", "tensorflow_in_place"),
            Writer("df-tensorflow", "df-tensorflow", "tensorflow_in_place"),
            Writer("df-keras", "df-keras", "tensorflow_in_place"),
        ),
        6.0, 0.5,
    ),
    Group(
        "jax", FRAMEWORKS,
        (
            Writer("orbax-async", "orbax-async", "jax_donating"),
            Writer("df-jax", "df-jax", "jax_donating"),
        ),
        2.5, 0.2,
    ),
)  # fmt: skip


def cases(plan: Plan) -> Iterator[Case]:
    for group in GROUPS:
        yield case(group, quick=plan.quick)


def case(group: Group, *, quick: bool) -> Case:
    attempts = [writer.attempts(quick=quick) for writer in group.writers]
    writers = [
        {**writer.as_json(), "attempts": count}
        for writer, count in zip(group.writers, attempts, strict=True)
    ]

    def work(place: Place) -> Iterator[Row]:
        asked = {"writers": writers, "directory": str(place.directory)}
        answers = ask(
            python(group.environment), "lab.programs.tearing", asked, place.directory,
            seconds_max=SECONDS_MAX,
        )  # fmt: skip
        for writer, answer in zip(group.writers, answers, strict=True):
            yield {**names_of(writer), **row(answer)}

    about: Row = {"framework": group.framework}
    seconds = group.start_seconds + sum(attempts) * group.attempt_seconds
    return Case("tearing", group.name, seconds, about, work, group.environment)


def names_of(writer: Writer) -> Row:
    return {
        "writer": writer.name, "title": writer.title or SAVERS[writer.saver].title,
        "workload": workload(writer), "state_bytes": writer.bytes, "tensors": writer.tensors,
    }  # fmt: skip


def workload(writer: Writer) -> str:
    each = writer.bytes // writer.tensors >> 20
    return f"{writer.tensors} weights of {each} MiB" if writer.tensors > 1 else f"{each} MiB alone"


def row(answer: dict[str, Any]) -> Row:
    """The worst of its attempts."""
    if "error" in answer:
        return failure(status_of_text(answer["error"]), answer["error"])
    attempts = answer["attempts"]
    verdicts = [verdict(attempt) for attempt in attempts]
    worst = next(word for word in (TORN, REFUSED, CONSISTENT) if word in verdicts)
    found: Row = {
        "verdict": worst, "trials": len(attempts),
        "steps_mixed": max(len(each.get("holds", [])) for each in attempts),
        "detail": json.dumps({"attempts": attempts, "verdicts": verdicts}),
    }  # fmt: skip
    refusals = [each["refused"] for each in attempts if each["refused"]]
    return found | ({"reason": refusals[0]} if refusals else {})


def verdict(attempt: dict[str, Any]) -> str:
    """Torn also where it is all of one step, but of one that was not asked for."""
    if attempt["refused"]:
        return REFUSED
    return CONSISTENT if attempt["holds"] == [attempt["asked"]] else TORN
