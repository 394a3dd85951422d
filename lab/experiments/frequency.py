"""What saving adds to the run time, by how often it is done."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

from lab.measure.case import Case, Place, Plan, in_turns
from lab.measure.program import ask, environment_of, python
from lab.measure.row import Row
from lab.measure.run import failure, status_of_text
from lab.networks.asked import parameters

WRITERS = {
    "pytorch": (
        "torch-save", "dcp-async", "df-default", "df-tier", "df-agent", "df-eager",
        "df-after-update",
    ),
    "chainer": ("snapshot", "snapshot-thread", "df-default"),
    "tensorflow": ("keras-save", "tf-checkpoint", "tf-checkpoint-async", "df-default"),
    "jax": ("orbax-async", "df-default"),
}  # fmt: skip
OFF = 0  # the interval of a training that saves nothing
SEED_END = 1 << 32
TIMES_LONGER_MAX = 20.0  # than expected, before a process is taken to hang
SECONDS_MIN = 300.0


@dataclass(frozen=True)
class Load:
    """One network in one framework, and how it is trained."""

    framework: str
    workload: str
    intervals: tuple[tuple[int, ...], ...]  # those of one process together
    steps: int  # of a segment, each interval's multiple
    rounds: int
    seconds: float  # of one process, about
    settle_seconds: float = 0.5


TOGETHER = ((10, 5, 2, 1),)
APART = ((10,), (5,), (2,), (1,))
FEW_APART = ((10,), (2,), (1,))
QUICK = (
    Load("pytorch", "nt3-1k", ((4, 1),), 4, 1, 18.0),
    Load("chainer", "nt3-1k", ((1,),), 4, 1, 16.0),
    Load("tensorflow", "nt3-1k", ((1,),), 4, 1, 12.0),
    Load("jax", "nt3-1k", ((1,),), 4, 1, 10.5),
)
FULL = (
    Load("pytorch", "resnet50", FEW_APART, 10, 1, 80.0),
    Load("pytorch", "combo", APART, 10, 2, 35.0),
    Load("chainer", "nt3-1k", FEW_APART, 10, 1, 28.0),
    Load("tensorflow", "nt3-1k", TOGETHER, 10, 2, 38.0),
    Load("jax", "nt3-1k", TOGETHER, 10, 2, 29.0),
)


def cases(plan: Plan) -> Iterator[Case]:
    loads = QUICK if plan.quick else FULL
    for turn in in_turns(plan, "frequency", loads, lambda load: load.intervals):
        yield case(plan, *turn)


def case(plan: Plan, load: Load, intervals: tuple[int, ...], repetition: int) -> Case:
    environment = environment_of(load.framework)
    names = (load.framework, load.workload, "-".join(map(str, intervals)), str(repetition))
    request = {
        "framework": load.framework, "workload": load.workload, "intervals": intervals,
        "writers": WRITERS[load.framework], "steps": load.steps, "repetition": repetition,
        "settle_seconds": load.settle_seconds,
        "seed": plan.random("frequency", load.workload).randrange(SEED_END),
        "order_seed": plan.random("frequency", *names).randrange(SEED_END),
    }  # fmt: skip

    def work(place: Place) -> Iterator[Row]:
        place.directory.joinpath("runs").mkdir()
        asked = {**request, "directory": str(place.directory / "runs")}
        answer = ask(
            python(environment), "lab.programs.frequency", asked, place.directory,
            seconds_max=max(SECONDS_MIN, TIMES_LONGER_MAX * load.seconds),
        )  # fmt: skip
        return rows(answer["segments"])

    about: Row = {
        "framework": load.framework, "workload": load.workload, "repetition": repetition,
        **parameters(load.workload),
    }  # fmt: skip
    return Case("frequency", "/".join(names), load.seconds, about, work, environment)


def rows(segments: list[dict[str, Any]]) -> Iterator[Row]:
    """One for each segment, beside the trainings of the same style that saved nothing."""
    for one in segments:
        bare = [each for each in segments if is_bare(each, one["in_backward"])]
        yield {**names_of(one), **(broken(one) if one["fault"] else figures(one, bare))}


def is_bare(segment: dict[str, Any], in_backward: bool) -> bool:
    alike = segment["in_backward"] == in_backward
    return bool(segment["baseline"] and alike and not segment["fault"])


def names_of(one: dict[str, Any]) -> Row:
    return {
        "writer": one["saver"], "title": one["title"], "order": one["position"],
        "interval": OFF if one["baseline"] else one["every"],
        "synced": "" if one["baseline"] else one["synced"].removesuffix(", no directory"),
    }  # fmt: skip


def broken(one: dict[str, Any]) -> Row:
    return failure(status_of_text(one["fault"]), one["fault"])


def figures(one: dict[str, Any], bare: list[dict[str, Any]]) -> Row:
    row: Row = {"state_bytes": one["state_bytes"], "tensors": one["tensor_count"]}
    if bare:
        row["run_time_ratio"] = one["seconds"] / median(each["seconds"] for each in bare)
        without = [one] if one["baseline"] else bare
        row["step_seconds"] = median(step for each in without for step in each["step_seconds"])
    if one["saves"]:
        row |= of_saves(one)
    row["detail"] = json.dumps(detail(one))
    return row


def of_saves(one: dict[str, Any]) -> Row:
    """Medians over the segment's saves. Durable is only what its writer has synced itself."""
    committed = median(save["durable_seconds"] for save in one["saves"])
    row: Row = {
        "stall_seconds": median(map(stall, one["saves"])),
        "first_stall_seconds": one["first_save_seconds"],
        "committed_seconds": committed,
    }  # fmt: skip
    if one["synced"] == "all":
        row["durable_seconds"] = committed
    if one["written_bytes"] is not None:
        row["written_bytes"] = one["written_bytes"] / len(one["saves"])
    return row


def stall(save: dict[str, Any]) -> float:
    return float(save["call_seconds"] + save["fence_seconds"])


def detail(one: dict[str, Any]) -> dict[str, Any]:
    return {
        "saves": len(one["saves"]),
        "stall_worst_seconds": max(map(stall, one["saves"]), default=None),
        "step_seconds_beside_saves": median(one["step_seconds"]),
        "drain_seconds": one["drain_seconds"],
        "cpu_seconds": one["cpu_seconds"],
        "file_bytes": one["file_bytes"],
        "copy_seconds": one["copy_seconds"],
        "last_loss": one["last_loss"],
    }
