"""Whether a training that is killed and resumed goes on as if nothing had been."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lab.experiments.faults import questions
from lab.measure.case import Case, Place, Plan
from lab.measure.program import ask, environment_of, python
from lab.measure.row import LEFT_OUT, NO_SPACE, Row
from lab.measure.run import failure, status_of_text
from lab.programs import restart_job as job
from lab.writers.tried import QUICK_REASON

SEED_END = 1 << 32
DELAY_SECONDS_MAX = 0.01  # about as long as these saves take
SECONDS_MAX = 900.0
KERAS_PARTS = (job.MODEL, job.OPTIMIZER, job.RNG, job.DATA)  # the optimizer counts for the rate
KERAS_FILE = (job.MODEL, job.OPTIMIZER)
TITLES = {
    "torch-save": "torch.save of state_dict()s", "dcp": "torch.distributed.checkpoint",
    "df": "DeepFreeze", "df-in-backward": "DeepFreeze, mode after_update",
    "chainer-snapshot": "extensions.snapshot() as it comes",
    "chainer-snapshot-rng": "extensions.snapshot(), generators by an extension of its user",
    "chainer-npz": "serializers.save_npz() of the model",
    "keras-weights": "save_weights(.weights.h5)", "keras": "save(.keras)",
    "keras-legacy": "save(.h5)", "tf-checkpoint": "tf.train.CheckpointManager",
    "keras-backup": "BackupAndRestore, each epoch",
    "keras-backup-batches": f"BackupAndRestore, every {job.INTERVAL} batches",
    "df-callback": "DeepFreezeCallback", "df-callback-in-graph": "DeepFreezeCallback, after_update",
    "orbax": "Orbax CheckpointManager", "none": "no checkpoints: two undisturbed runs",
}  # fmt: skip
UNTRIED = {
    "workers that load data": "batches are made in the process that trains, here: where workers "
    "stand in theirs is not known to any checkpoint that is compared",
    "several ranks": "one process is killed and resumed: ranks that sum in another order after a "
    "restart are not tried, `scale` measures what their saves cost",
}
ENVIRONMENT = {
    job.OTHER_THREADS: "one thread before the kill, two after it",
    job.OTHER_ORDER: "one batch is passed over after the restore",
    job.OTHER_PIPELINE: "the new process seeds its tf.data pipeline otherwise: no iterator holds "
    "that",
}


@dataclass(frozen=True)
class Restart:
    """One row. A negative control lacks a part that the training needs."""

    writer: str
    saved: tuple[str, ...] = job.PARTS
    variant: str = ""
    fault: str = job.KILLED
    control: bool = False
    quick: bool = True


def without(writer: str, part: str, parts: tuple[str, ...] = job.PARTS, *, quick: bool) -> Restart:
    kept = tuple(each for each in parts if each != part)
    return Restart(writer, kept, control=True, quick=quick)


def partial(writer: str, *saved: str) -> Restart:
    return Restart(writer, saved, control=True)


def torch_restarts() -> Iterator[Restart]:
    yield partial("torch-save", job.MODEL)
    yield partial("torch-save", job.MODEL, job.OPTIMIZER)
    yield partial("torch-save", job.MODEL, job.OPTIMIZER, job.SCHEDULER)
    for part in job.PARTS:
        yield without("torch-save", part, quick=part in (job.RNG, job.DATA))
    yield from map(Restart, ("torch-save", "dcp", "df"))
    yield Restart("df-in-backward", variant=job.IN_BACKWARD)
    for part in job.PARTS:
        yield without("df", part, quick=False)
    yield Restart("df", fault=job.KILLED_IN_SAVE)
    yield Restart("df-in-backward", variant=job.IN_BACKWARD, fault=job.KILLED_IN_SAVE, quick=False)
    yield Restart("torch-save", fault=job.OTHER_THREADS)
    yield Restart("torch-save", fault=job.OTHER_ORDER)
    yield Restart("df", fault=job.OTHER_THREADS, quick=False)


def chainer_restarts() -> Iterator[Restart]:
    yield partial("chainer-npz", job.MODEL)
    yield without("chainer-snapshot", job.RNG, quick=True)
    yield from map(Restart, ("chainer-snapshot-rng", "df"))
    for part in (job.MODEL, job.OPTIMIZER, job.SCHEDULER, job.DATA):
        yield without("chainer-snapshot-rng", part, quick=part == job.DATA)
    yield Restart("df", fault=job.KILLED_IN_SAVE)
    yield Restart("chainer-snapshot-rng", fault=job.KILLED_IN_SAVE, quick=False)
    yield Restart("chainer-snapshot-rng", fault=job.OTHER_THREADS)
    yield Restart("chainer-snapshot-rng", fault=job.OTHER_ORDER, quick=False)


def keras_restarts() -> Iterator[Restart]:
    yield partial("keras-weights", job.MODEL)
    yield Restart("keras-weights", KERAS_FILE, quick=False)
    yield Restart("keras", KERAS_FILE)
    yield Restart("keras-legacy", KERAS_FILE)
    yield partial("tf-checkpoint", *KERAS_FILE)
    yield without("tf-checkpoint", job.RNG, KERAS_PARTS, quick=True)
    yield Restart("tf-checkpoint", KERAS_PARTS)
    yield Restart("df", KERAS_PARTS)
    yield Restart("df-callback", KERAS_PARTS, job.FIT)
    yield Restart("df-callback-in-graph", KERAS_PARTS, job.FIT, quick=False)
    yield Restart("keras-backup", KERAS_FILE, job.FIT)
    for writer in ("keras-backup", "keras-backup-batches"):
        yield Restart(writer, KERAS_FILE, job.FIT_NO_DROPOUT, quick=False)
    for part in (job.MODEL, job.OPTIMIZER, job.DATA):
        yield without("tf-checkpoint", part, KERAS_PARTS, quick=False)
    yield without("df", job.DATA, KERAS_PARTS, quick=False)
    for writer in ("tf-checkpoint", "df"):
        yield Restart(writer, KERAS_PARTS, fault=job.KILLED_IN_SAVE, quick=False)
        yield Restart(writer, KERAS_PARTS, fault=job.OTHER_PIPELINE, quick=False)
    yield Restart("tf-checkpoint", KERAS_PARTS, fault=job.OTHER_THREADS, quick=False)
    yield Restart("tf-checkpoint", KERAS_PARTS, fault=job.OTHER_ORDER, quick=False)


def jax_restarts() -> Iterator[Restart]:
    yield partial("orbax", job.MODEL)
    yield from map(Restart, ("orbax", "df"))
    for part in job.PARTS:
        yield without("orbax", part, quick=part == job.RNG)
        yield without("df", part, quick=False)
    yield Restart("df", fault=job.KILLED_IN_SAVE)
    yield Restart("orbax", fault=job.KILLED_IN_SAVE, quick=False)
    yield Restart("orbax", fault=job.OTHER_THREADS, quick=False)
    yield Restart("orbax", fault=job.OTHER_ORDER, quick=False)


@dataclass(frozen=True)
class Subject:
    framework: str
    program: str  # lab.programs.restart_<it>
    restarts: tuple[Restart, ...]
    start_seconds: float  # imports and the undisturbed runs
    restart_seconds: float


SUBJECTS = (
    Subject("pytorch", "torch", tuple(torch_restarts()), 4.0, 0.15),
    Subject("chainer", "chainer", tuple(chainer_restarts()), 2.0, 0.2),
    Subject("tensorflow", "tensorflow", tuple(keras_restarts()), 9.0, 0.75),
    Subject("jax", "jax", tuple(jax_restarts()), 8.0, 0.7),
)


def cases(plan: Plan) -> Iterator[Case]:
    """One for each framework: its runs are forked from one process, and share their reference."""
    for subject in SUBJECTS:
        yield case(plan, subject)
    yield from questions("determinism", UNTRIED)


def case(plan: Plan, subject: Subject) -> Case:
    environment = environment_of(subject.framework)
    random = plan.random("determinism", subject.framework)
    restarts = [each for each in subject.restarts if each.quick or not plan.quick]
    asked: dict[str, Any] = {
        "framework": subject.program,
        "seed": random.randrange(SEED_END >> 1),
        "restarts": [
            {"writer": each.writer, "saved": each.saved, "variant": each.variant,
             "fault": each.fault, "delay_seconds": random.uniform(0, DELAY_SECONDS_MAX)}
            for each in restarts
        ],
    }  # fmt: skip

    def work(place: Place) -> Iterator[Row]:
        program, path = python(environment), place.directory
        runs = path / "runs"
        runs.mkdir()
        request = {**asked, "directory": str(runs)}
        answer = ask(program, "lab.programs.restart", request, path, seconds_max=SECONDS_MAX)
        versions = ", ".join(f"{name} {one}" for name, one in answer["versions"].items())
        for variant, found in answer["baselines"].items():
            yield {**baseline_row(variant, found), "versions": versions}
        for restart, found in zip(restarts, answer["restarts"], strict=True):
            yield {**row(restart, found), "versions": versions}
        for restart in subject.restarts:
            if restart not in restarts:
                yield {**names(restart), **failure(LEFT_OUT, QUICK_REASON)}

    seconds = subject.start_seconds + subject.restart_seconds * len(restarts)
    about: Row = {"framework": subject.framework}
    return Case("determinism", subject.framework, seconds, about, work, environment)


def baseline_row(variant: str, found: dict[str, Any]) -> Row:
    return {
        "workload": workload(variant), "writer": "none", "title": TITLES["none"], "saved": "",
        "interval": 0, "fault": "", **verdict(found), "reason": found["reason"],
        "detail": json.dumps({
            "steps": job.STEPS, "steps_of_an_epoch": job.BATCHES, "threads": job.THREADS,
        }),
    }  # fmt: skip


def names(restart: Restart) -> Row:
    return {
        "workload": workload(restart.variant),
        "writer": restart.writer,
        "title": TITLES[restart.writer],
        "saved": ", ".join(restart.saved),
        "interval": job.BATCHES if restart.writer == "keras-backup" else job.INTERVAL,
        "fault": restart.fault,
    }


def row(restart: Restart, found: dict[str, Any]) -> Row:
    told: Row = {
        **names(restart),
        **verdict(found),
        "missing": ", ".join(found["missing"]),
        "reason": found["reason"] or meaning(restart, found),
        "detail": json.dumps(detail(restart, found)),
    }
    if status_of_text(found["reason"]) == NO_SPACE:  # no verdict about the writer
        told["status"] = NO_SPACE
    if restart.fault in ENVIRONMENT:
        told["missing"] = ""  # all came back: what differs is not of the checkpoint
    return told


def detail(restart: Restart, found: dict[str, Any]) -> dict[str, Any]:
    told = {"resumed_from": found["restored_step"], "model_differs_from": found["learns_otherwise"]}
    return told if restart.fault == job.KILLED_IN_SAVE else {"killed_at": job.KILL_STEP, **told}


def workload(variant: str) -> str:
    return f"mlp, {variant}" if variant else "mlp"


def verdict(found: dict[str, Any]) -> Row:
    return {name: found[name] for name in ("verdict", "first_step", "first_entry")}


def meaning(restart: Restart, found: dict[str, Any]) -> str:
    """Of a control: it must learn otherwise, else the experiment is blind to what it is about."""
    differs = found["learns_otherwise"] is not None
    if restart.fault in ENVIRONMENT:
        text = ENVIRONMENT[restart.fault]
        return text if differs else f"{text}: no difference in this training"
    if not restart.control:
        return ""
    if found["verdict"] == job.FAILED:
        return ""
    if not differs:
        return "no power: a part was not saved, and the model ends alike"
    return "negative control: it must diverge"
