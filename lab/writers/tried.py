"""The writers that are compared: bench's savers, and whose they are."""

from collections.abc import Iterable, Iterator, Mapping

from lab.measure.row import Row
from lab.networks.asked import parameters
from lab.writers.menu import MENU, Entry

NAMES_OF_WRITERS = frozenset(entry.name for entry in MENU)
LEFT_OUT = {"fastpersist": "its extension takes minutes to compile: `make bench` measures it"}
COMPRESSED = ("chainer", "chainer-hdf5")  # 5 to 30 times as slow as the others: fewer saves
QUICK_REASON = "takes long, or differs little from another: left out with --quick"
QUICK_LEFT_OUT = (
    "df-quarter", "df-latency", "df-jax-latency", "df-tensorflow-latency", "df-keras-latency",
    "df-chainer-latency", "dcp-async", "torchsnapshot", "torch-checkpointing",
    "torch-checkpointing-default", "chainer-simple", "keras-legacy", "orbax", "torch-save-legacy",
    "chainer-hdf5", "tensorflow-saved-model",
)  # fmt: skip
NONE: Mapping[str, str] = {}
SAME_LOAD_REASON = "loads the same files as another writer does, in the same way"
# Of these that is said.
SAME_LOAD = (
    "torch-save-fsync", "dcp-async-reused", "chainer-process", "chainer-thread",
    "chainer-thread-queue", "chainer-process-queue", "tensorflow-async", "df-keras",
)  # fmt: skip


def chosen(quick: bool) -> tuple[Entry, ...]:
    """In the order of bench's menu."""
    skipped = (*LEFT_OUT, *QUICK_LEFT_OUT) if quick else LEFT_OUT
    return tuple(entry for entry in MENU if entry.name not in skipped)


def left_out(quick: bool, also: Mapping[str, str] = NONE) -> Iterator[tuple[Entry, str]]:
    """The others, and why; `also` those whom the experiment leaves out for reasons of its own."""
    reasons = {**also, **LEFT_OUT, **dict.fromkeys(QUICK_LEFT_OUT if quick else (), QUICK_REASON)}
    return ((entry, reasons[entry.name]) for entry in MENU if entry.name in reasons)


def about(entry: Entry, workload: str) -> Row:
    return {
        "framework": entry.framework,
        "writer": entry.name,
        "title": entry.title,
        "workload": workload,
        "synced": entry.synced,
        "checked": entry.verifies,
        **parameters(workload),
    }


def by_environment(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(entry.environment, []).append(entry)
    return found
