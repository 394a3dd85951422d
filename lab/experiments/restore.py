"""What coming back costs: a restore from cold files, one tensor, and a whole restart."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

from lab.experiments.cost import SECONDS_MAX, Size, interleaved, layout_of
from lab.measure import alone as jobs
from lab.measure.case import Case, Place, Plan, ToolError, refusing
from lab.measure.program import FRAMEWORKS, OWN, ask, environment_of, python
from lab.measure.row import Row
from lab.writers.menu import Entry
from lab.writers.tried import QUICK_REASON, SAME_LOAD, SAME_LOAD_REASON, about, left_out

QUICK = Size(("combo",), rounds=1, saves=1)
FULL = Size(("resnet50",), rounds=2, saves=1)
# The last two hold what a writer that is restored holds, compressed or bare.
QUICK_PASSED_OVER = ("chainer", "keras-weights")
QUICK_NOT_RESTARTED = ("chainer", "jax")
LEFT_OUT_SECONDS = 0.01
RESTART_ROUNDS = 1  # two were at most 13 % apart
RESTART_SECONDS = {
    "nt3-1k": {OWN: 7.0, FRAMEWORKS: 16.0}, "resnet50": {OWN: 7.5, FRAMEWORKS: 29.5},
}  # fmt: skip
MORE_SECONDS = 1.5  # than where it is only saved
OWN_WRITER = {
    "pytorch": "torch.save",
    "chainer": "npz, uncompressed",
    "tensorflow": "tf.train.Checkpoint",
    "jax": "Orbax",
}
DF = "df"
SAME_LOSS, OTHER_LOSS = "the same", "another"  # of the step that follows, to the bit
PROGRAM = "lab.programs.first_step"


def measured(entry: Entry, workload: str, size: Size, round_index: int, place: Place) -> list[Row]:
    """Saved while the state goes on to change; what comes back is compared byte by byte."""
    path, layout = layout_of(workload, place)
    seed = place.plan.seed
    checkpoints = place.directory / "checkpoints"
    found = jobs.measure(entry, path, checkpoints, seed, size.saves, SECONDS_MAX)
    if "restore" not in found:
        raise ToolError(found["error"])
    known: Row = {"tensors": len(layout.tensors), "state_bytes": layout.nbytes}
    return [{**known, **figures(found["restore"]), "repetition": round_index}]


def figures(restored: dict[str, Any]) -> Row:
    if "error" in restored:
        raise ToolError(restored["error"])
    right = not restored["wrong"] and not restored["partial_wrong"]
    wrong = {"wrong": len(restored["wrong"]), "names": restored["wrong"][:3]}
    return {
        "verdict": "same bytes" if right else "other bytes",
        "restore_seconds": restored["seconds"],
        "one_tensor_seconds": restored["partial_seconds"],
        "cpu_seconds": restored["cpu_seconds"],
        "peak_bytes": restored["peak_bytes"],
        "detail": "" if right else json.dumps(wrong),
    }


def restarted(framework: str, writer: str, workload: str, index: int, place: Place) -> list[Row]:
    """A process trains, saves and ends; a new one resumes and does its first step."""
    request = {
        "framework": framework,
        "workload": workload,
        "writer": writer,
        "seed": place.plan.seed,
        "directory": str(place.directory),
    }
    program = python(environment_of(framework))
    saved = ask(program, PROGRAM, {**request, "part": "save"}, place.directory)
    times = ask(program, PROGRAM, {**request, "part": "resume"}, place.directory)
    return [{
        "repetition": index,
        "verdict": SAME_LOSS if times["loss"] == saved["loss"] else OTHER_LOSS,
        "restore_seconds": times["restored"] - times["built"],
        "first_step_seconds": times["first_step"],
        "detail": json.dumps({name: round(times[name], 3) for name in ("imported", "built")}),
    }]  # fmt: skip


def restarts(plan: Plan) -> Iterator[Case]:
    workload = "nt3-1k" if plan.quick else "resnet50"
    for index in range(RESTART_ROUNDS):
        pairs = [(framework, writer) for framework in OWN_WRITER for writer in ("own", DF)]
        plan.random("restart", index).shuffle(pairs)
        for framework, writer in pairs:
            title = "DeepFreeze" if writer == DF else OWN_WRITER[framework]
            named: Row = {"framework": framework, "writer": writer, "title": title}
            named |= {"workload": workload, "fault": "process ended"}
            omitted = plan.quick and framework in QUICK_NOT_RESTARTED
            environment = environment_of(framework)
            work = partial(restarted, framework, writer, workload, index)
            yield Case(
                "restore",
                f"restart/{workload}/{framework}/{writer}/{index}",
                LEFT_OUT_SECONDS if omitted else RESTART_SECONDS[workload][environment],
                named,
                refusing(QUICK_REASON) if omitted else work,
                environment,
            )


def cases(plan: Plan) -> Iterator[Case]:
    size = QUICK if plan.quick else FULL
    omitted = dict.fromkeys(SAME_LOAD, SAME_LOAD_REASON)
    omitted |= dict.fromkeys(QUICK_PASSED_OVER if plan.quick else (), QUICK_REASON)
    yield from interleaved("restore", plan, size, measured, MORE_SECONDS, tuple(omitted))
    for entry, reason in left_out(plan.quick, omitted):
        named = {**about(entry, ""), "synced": None, "checked": None}
        yield Case("restore", f"left out {entry.name}", LEFT_OUT_SECONDS, named, refusing(reason))
    yield from restarts(plan)
