"""What flipped bits in a checkpoint do to the training that resumes from it, and who tells.

After Rojas et al. (CLUSTER 2021, SBAC-PAD 2022): a deterministic training is resumed from a
state with so many bits of one class flipped in one component. Its last loss is that of held-out
rows, in evaluation: batch-norm statistics have no part in any other. Then one of the same flips
at a time is made in the files that each writer has saved, and its own reader loads them.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lab.measure.case import Case, Place, Plan, refusing
from lab.measure.program import FRAMEWORKS, OWN, PEERS, ask, python
from lab.measure.row import LEFT_OUT, Row
from lab.measure.run import failure, status_of_text
from lab.writers.menu import JAX, SAVERS

BITS = ("mantissa 0-22", "exponent 23-27", "exponent 28-29", "exponent 30", "sign 31")
COMPONENTS = ("model", "optimizer", "batch-norm statistics")
FLIPS = (1, 100)
QUICK_TRIALS, TRIALS = 6, 24
QUICK_FILE_TRIALS, FILE_TRIALS = 1, 6  # a component and bit class: the first of those above
SEED_END = 1 << 32
SECONDS_MAX = 900.0
ADAM, MOMENTUM = "adam", "momentum"
WORKLOADS = {
    ADAM: "MLP with batch norm and dropout, Adam",
    MOMENTUM: "MLP with batch norm and dropout, SGD with momentum",
}
TRAININGS = (
    ("model", MOMENTUM), ("optimizer", MOMENTUM), ("batch-norm statistics", MOMENTUM),
    ("optimizer", ADAM),
)  # fmt: skip
UNTRIED = ("model", "batch-norm statistics")  # with Adam
UNTRIED_REASON = (
    "the training goes on with the same numbers, whichever optimizer: with momentum they are tried"
)
TOLD, SILENT = "told", "silent"
NO_PLACE = "no place"  # as lab.programs.sdc_files says
COMPRESSED = "compressed, no file has bits of a number to flip; see `corruption`"
LOST, SHIFTED, ABSORBED = "lost", "shifted", "absorbed"
LOST_SHARE, SHIFTED_SHARE = 1.0, 0.01  # of the undisturbed loss: more than that
TRIAL_SECONDS = 0.037


@dataclass(frozen=True)
class Group:
    """What one process does."""

    framework: str
    environment: str
    writers: tuple[str, ...]
    start_seconds: float
    load_seconds: float  # about, of one load

    @property
    def name(self) -> str:
        return "files/" + "/".join(filter(None, (self.framework, self.environment)))


OWN_SAVERS = {
    "orbax-plain": ("OrbaxPlain", "Orbax sync, OCDBT without compression"),
    "orbax-zarr-plain": ("OrbaxZarrPlain", "Orbax sync, zarr without compression"),
}
GROUPS = (
    Group("pytorch", OWN,
          ("torch-save", "torch-save-legacy", "safetensors", "dcp", "df"), 2.0, 0.007),
    Group("pytorch", PEERS, ("torchsnapshot", "torch-checkpointing-sync"), 3.0, 0.01),
    Group("chainer", FRAMEWORKS,
          ("chainer-stored", "chainer", "chainer-hdf5-stored", "chainer-hdf5", "df-chainer"),
          1.5, 0.003),
    Group("tensorflow", FRAMEWORKS,
          ("tensorflow", "tensorflow-saved-model", "keras-weights", "keras", "keras-legacy",
           "df-tensorflow"), 5.0, 0.035),
    Group("jax", FRAMEWORKS, ("orbax", *OWN_SAVERS, "df-jax"), 2.5, 0.015),
)  # fmt: skip


def cases(plan: Plan) -> Iterator[Case]:
    for component, optimizer in TRAININGS:
        yield of_training(plan, component, optimizer)
    for component in UNTRIED:
        about: Row = {"framework": "pytorch", "workload": WORKLOADS[ADAM], "component": component}
        why = refusing(UNTRIED_REASON)
        yield Case("sdc", f"left out {ADAM}/{component}", 0.01, about, why)
    for group in GROUPS:
        yield of_files(plan, group)


def of_training(plan: Plan, component: str, optimizer: str) -> Case:
    trials = QUICK_TRIALS if plan.quick else TRIALS
    asked = [one for flips in FLIPS for one in questions(plan, (component,), flips, trials)]

    def work(place: Place) -> Iterator[Row]:
        seed = plan.random("sdc", "training").randrange(SEED_END)
        request = {"seed": seed, "optimizer": optimizer, "asked": asked}
        answer = ask(
            python(OWN), "lab.programs.sdc_training", request, place.directory,
            seconds_max=SECONDS_MAX,
        )  # fmt: skip
        for one in answer["measured"]:
            names: Row = {name: one[name] for name in ("component", "bits", "flips")}
            versions = f"torch {answer['version']}"
            yield {**names, "versions": versions, **training_row(answer, one["trials"])}

    seconds = 3.0 + len(asked) * trials * TRIAL_SECONDS
    about: Row = {"framework": "pytorch", "workload": WORKLOADS[optimizer]}
    return Case("sdc", f"training/{optimizer}/{component}", seconds, about, work)


def questions(
    plan: Plan, components: tuple[str, ...], flips: int, trials: int
) -> Iterator[dict[str, Any]]:
    """A trial's seed says where; the first trials of a longer study are those of a shorter."""
    for component in components:
        for bits in BITS:
            words = f"{plan.seed} sdc {component} {bits} {flips}"
            seeds = [f"{words} {trial}" for trial in range(trials)]
            yield {"component": component, "bits": bits, "flips": flips, "seeds": seeds}


def training_row(answer: dict[str, Any], trials: list[dict[str, Any]]) -> Row:
    losses = [trial["evaluated"] for trial in trials]
    changes = [abs(loss - answer["evaluated"]) for loss in losses if loss is not None]
    nan = losses.count(None)
    base = {name: answer[name] for name in ("trained", "evaluated")}
    greatest = max(changes, default=None)
    return {
        "verdict": verdict(nan, greatest, answer["evaluated"]),
        "trials": len(trials), "nan": nan, "loss_change": greatest,
        "detail": json.dumps({"undisturbed": base, "trials": trials}),
    }  # fmt: skip


def verdict(nan: int, greatest: float | None, undisturbed: float) -> str:
    """Of the worst trial."""
    if nan or greatest is None or greatest > LOST_SHARE * undisturbed:
        return LOST
    return SHIFTED if greatest > SHIFTED_SHARE * undisturbed else ABSORBED


def of_files(plan: Plan, group: Group) -> Case:
    trials = QUICK_FILE_TRIALS if plan.quick else FILE_TRIALS
    asked = list(questions(plan, COMPONENTS, 1, trials))

    def work(place: Place) -> Iterator[Row]:
        request = {
            "writers": [writer_of(name) for name in group.writers], "asked": asked,
            "seed": plan.random("sdc", "values").randrange(SEED_END),
            "directory": str(place.directory),
        }  # fmt: skip
        answers = ask(
            python(group.environment), "lab.programs.sdc_files", request, place.directory,
            seconds_max=SECONDS_MAX,
        )  # fmt: skip
        for name, answer in zip(group.writers, answers, strict=True):
            for row in file_rows(answer):
                yield {"writer": name, "title": title(name), **row}

    loads = len(group.writers) * len(asked) * trials
    seconds = group.start_seconds + loads * group.load_seconds
    about: Row = {"framework": group.framework, "workload": WORKLOADS[ADAM], "flips": 1}
    return Case("sdc", group.name, seconds, about, work, group.environment)


def writer_of(name: str) -> dict[str, str]:
    if name in OWN_SAVERS:
        return {"name": name, "module": JAX, "kind": OWN_SAVERS[name][0]}
    return {"name": name, "module": SAVERS[name].module, "kind": SAVERS[name].kind}


def title(name: str) -> str:
    return OWN_SAVERS[name][1] if name in OWN_SAVERS else SAVERS[name].title


def file_rows(answer: dict[str, Any]) -> Iterator[Row]:
    """One for each bit class; or one alone that says why there is none."""
    if "error" in answer:
        yield failure(status_of_text(answer["error"]), answer["error"])
        return
    made = {bits: [one for one in trials if one["outcome"] != NO_PLACE]
            for bits, trials in answer["trials"].items()}  # fmt: skip
    if not any(made.values()):
        yield failure(LEFT_OUT, COMPRESSED)
        return
    for bits, trials in made.items():
        yield file_row(bits, trials, left=len(answer["trials"][bits]) - len(trials))


def file_row(bits: str, trials: list[dict[str, Any]], left: int) -> Row:
    if not trials:
        return {"bits": bits, **failure(LEFT_OUT, f"of {left} places none: {COMPRESSED}")}
    found = Counter(trial["outcome"] for trial in trials)
    reason: Row = {"reason": f"{left} further places: {COMPRESSED}"} if left else {}
    return {
        "bits": bits, "verdict": SILENT if found["silent"] else TOLD,
        "trials": len(trials), "found": found["found"], "silent": found["silent"],
        "detail": json.dumps({"trials": trials}), **reason,
    }  # fmt: skip
