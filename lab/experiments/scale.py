"""What saving costs a data-parallel training, by the number of its ranks and by who writes."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

from lab.experiments import simulated
from lab.measure.case import Case, Place, Plan, in_turns, refusing
from lab.measure.program import ask, environment_of, python
from lab.measure.row import Row
from lab.measure.run import failure, status_of_text
from lab.networks.asked import parameters

Ranks = tuple[dict[str, Any], ...]  # what each tells of one segment

STRONG, WEAK = "strong", "weak"
SCALINGS = (WEAK, STRONG)
NONE = "none"  # of a training that saves nothing
STRATEGIES = {
    "pytorch": ("rank0", "all-write", "asynchronous", "sharded", "deepfreeze"),
    "chainer": ("rank0", "all-write", "asynchronous", "deepfreeze"),
    "tensorflow": ("rank0", "all-write", "asynchronous", "deepfreeze"),
}
UNSYNCED = "its writers don't sync: there is no time until durable to hold the model against"
LEFT_OUT: tuple[tuple[Row, str], ...] = (
    (
        {"framework": "chainer", "strategy": "sharded"},
        "Chainer has no writer whose ranks write parts of one checkpoint",
    ),
    (
        {"framework": "tensorflow", "strategy": "sharded"},
        "tf.train.Checkpoint writes mirrored variables whole, whoever calls it",
    ),
    (
        {"framework": "tensorflow", "ranks": 8},
        "MultiWorkerMirroredStrategy is run with four workers at most: each takes long to start",
    ),
    ({"framework": "chainer", "quantity": "stall_seconds", "simulated": True}, UNSYNCED),
    ({"framework": "tensorflow", "quantity": "stall_seconds", "simulated": True}, UNSYNCED),
    ({"framework": "jax"}, "the published study has no JAX: its several processes were not run"),
)
QUICK_REASON = "so many ranks are left out with --quick"
SAVES_NOTHING: Row = {"strategy": NONE, "title": "no checkpoints", "synced": "", "interval": 0}
SEED_END = 1 << 32
TIMES_LONGER_MAX = 20.0  # than expected, before a job is taken to hang
SECONDS_MIN = 240.0
GRACE_SECONDS = 30.0  # for the job's own end, before its program is ended


@dataclass(frozen=True)
class Load:
    """One network in one framework, trained by so many ranks."""

    framework: str
    workload: str
    ranks: int
    rounds: int
    seconds: float  # of one job, about
    every: int = 2
    steps: int = 4
    scalings: tuple[str, ...] = SCALINGS
    settle_seconds: float = 0.2


QUICK = (
    Load("pytorch", "mlp", 1, 1, 7.0, scalings=(WEAK,)),
    Load("pytorch", "mlp", 2, 1, 9.0),
    Load("pytorch", "mlp", 4, 1, 14.0, scalings=(WEAK,)),
    Load("chainer", "nt3-1k", 1, 1, 13.0, steps=2, scalings=(WEAK,)),
    Load("chainer", "nt3-1k", 2, 1, 17.0, steps=2, scalings=(WEAK,)),
    Load("tensorflow", "nt3-1k", 1, 1, 14.0, steps=2, scalings=(WEAK,)),
    Load("tensorflow", "nt3-1k", 2, 1, 16.0, steps=2, scalings=(WEAK,)),
)
FULL = (
    Load("pytorch", "combo", 1, 2, 15.0),
    Load("pytorch", "combo", 2, 2, 17.0),
    Load("pytorch", "combo", 4, 1, 34.0),
    Load("pytorch", "combo", 8, 1, 68.0),
    Load("chainer", "nt3-1k", 1, 1, 22.0),
    Load("chainer", "nt3-1k", 2, 1, 18.0),
    Load("chainer", "nt3-1k", 4, 1, 36.0),
    Load("chainer", "nt3-1k", 8, 1, 70.0),
    Load("tensorflow", "nt3-1k", 1, 1, 15.0),
    Load("tensorflow", "nt3-1k", 2, 1, 17.0),
    Load("tensorflow", "nt3-1k", 4, 1, 30.0),
)


def cases(plan: Plan) -> Iterator[Case]:
    loads = QUICK if plan.quick else FULL
    for turn in in_turns(plan, "scale", loads, lambda load: load.scalings):
        yield case(plan, *turn)
    yield from left_out(plan)
    yield from simulated.cases(WEAK)


def case(plan: Plan, load: Load, scaling: str, repetition: int) -> Case:
    environment = environment_of(load.framework)
    names = (load.framework, load.workload, f"{load.ranks} ranks", scaling, str(repetition))
    seconds_max = max(SECONDS_MIN, TIMES_LONGER_MAX * load.seconds)
    request = {
        "framework": load.framework, "workload": load.workload, "ranks": load.ranks,
        "scaling": scaling, "strategies": STRATEGIES[load.framework], "every": load.every,
        "steps": load.steps, "seconds_max": seconds_max,
        "settle_seconds": load.settle_seconds,
        "seed": plan.random("scale", load.workload).randrange(SEED_END),
        "order_seed": plan.random("scale", *names).randrange(SEED_END),
    }  # fmt: skip

    def work(place: Place) -> Iterator[Row]:
        place.directory.joinpath("runs").mkdir()
        asked = {**request, "directory": str(place.directory / "runs")}
        answer = ask(
            python(environment), "lab.programs.scale", asked, place.directory,
            seconds_max=seconds_max + GRACE_SECONDS,
        )  # fmt: skip
        return rows(answer, load.every)

    about: Row = {
        "framework": load.framework, "workload": load.workload, "ranks": load.ranks,
        "scaling": scaling, "repetition": repetition, **parameters(load.workload),
    }  # fmt: skip
    return Case("scale", "/".join(names), load.seconds, about, work, environment)


def left_out(plan: Plan) -> Iterator[Case]:
    """A row for each that is not measured, with the reason."""
    omitted = jobs(FULL) - jobs(QUICK) if plan.quick else set()
    fewer: list[tuple[Row, str]] = [
        ({"framework": name, "ranks": ranks}, QUICK_REASON) for name, ranks in sorted(omitted)
    ]
    for about, reason in (*LEFT_OUT, *fewer):
        name = " ".join(["left out", *map(str, about.values())])
        yield Case("scale", name, 0.01, about, refusing(reason))


def jobs(loads: tuple[Load, ...]) -> set[tuple[str, int]]:
    return {(load.framework, load.ranks) for load in loads}


def rows(answer: dict[str, Any], every: int) -> Iterator[Row]:
    """One for each strategy, of what all ranks tell of the segment."""
    by_segment = list(zip(*answer["by_rank"], strict=True))
    bare = [each for each in by_segment if each[0]["saver"] == NONE and not fault_of(each)]
    for ranks in by_segment:
        name = ranks[0]["saver"]
        about: Row = {"writer": name, "order": ranks[0]["position"]}
        about |= {**answer["savers"][name], "interval": every} if name != NONE else SAVES_NOTHING
        fault = fault_of(ranks)
        found = failure(status_of_text(fault), fault) if fault else figures(ranks, bare)
        if about["synced"] == "all" and "committed_seconds" in found:
            found["durable_seconds"] = found["committed_seconds"]
        yield {**about, **found}


def fault_of(ranks: Ranks) -> str:
    return next((str(one["fault"]) for one in ranks if one["fault"]), "")


def figures(ranks: Ranks, bare: list[Ranks]) -> Row:
    row: Row = {"state_bytes": ranks[0]["state_bytes"], "tensors": ranks[0]["tensors"]}
    if bare:
        row["run_time_ratio"] = slowest(ranks) / median(map(slowest, bare))
        without = [ranks] if ranks in bare else bare
        steps = [step for each in without for one in each for step in one["step_seconds"]]
        row["step_seconds"] = median(steps)
    if ranks[0]["stalls"]:
        row |= of_saves(ranks)
    row["detail"] = json.dumps({
        "stalls": [one["stalls"] for one in ranks],
        "own_bytes": [one["own_bytes"] for one in ranks],
        "step_seconds_beside_saves": median(s for one in ranks for s in one["step_seconds"]),
    })  # fmt: skip
    return row


def slowest(ranks: Ranks) -> float:
    return float(max(one["seconds"] for one in ranks))


def of_saves(ranks: Ranks) -> Row:
    """Of each save what the slowest rank needed; then the median over the saves."""
    stalls = list(zip(*(one["stalls"] for one in ranks), strict=True))
    ends = list(zip(*(one["durable"] for one in ranks), strict=True))
    ended = median(max(known(save)) for save in ends)
    row: Row = {
        "stall_seconds": median(max(save) for save in stalls),
        "straggler_seconds": median(max(save) - median(save) for save in stalls),
        "first_stall_seconds": max(known([one["first_stall"] for one in ranks])),
        "committed_seconds": ended,
        "file_bytes": sum(one["file_bytes"] or 0 for one in ranks),
    }
    own = [one["own_bytes"] for one in ranks]
    if None not in own and sum(own) > 0:
        row["imbalance"] = max(own) * len(own) / sum(own)
    return row


def known(values: Any) -> list[float]:
    """Of those ranks that save anything."""
    return [value for value in values if value is not None]
