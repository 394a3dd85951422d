"""Chainer: a Trainer with its extensions, and its writers."""

import functools
import importlib
import random
from collections.abc import Callable
from typing import Any

import numpy as np

import deepfreeze as df
from deepfreeze import chainer_compat
from lab.programs.restart_job import (
    DATA,
    INTERVAL,
    MODEL,
    OPTIMIZER,
    OTHER_ORDER,
    RNG,
    SCHEDULER,
    STEPS,
    Job,
)
from lab.programs.restart_protocol import Entries, Recorder, Task, Voice, newest, rows

chainer_compat.install()
chainer: Any = importlib.import_module("chainer")
threadpoolctl: Any = importlib.import_module("threadpoolctl")
extension: Any = importlib.import_module("deepfreeze.chainer")
F, L, extensions = chainer.functions, chainer.links, chainer.training.extensions

PACKAGES = ("chainer", "numpy", "deepfreeze-checkpoint")
BEFORE_SAVES, AFTER_SAVES = 500, -300  # of an extension's priorities: SNAPSHOT has -100
SNAPSHOT = "snapshot-{.updater.iteration}"


class Net(chainer.Chain):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.hidden = L.Linear(Task.WIDTH, Task.HIDDEN)
            self.norm = L.BatchNormalization(Task.HIDDEN)
            self.out = L.Linear(Task.HIDDEN, 1)

    def forward(self, x: Any) -> Any:
        return self.out(F.dropout(F.relu(self.norm(self.hidden(x))), Task.DROPOUT))


class Own:
    """A Trainer counts from 0 where it was not restored; `done` is what was trained before."""

    def __init__(self, seed: int, data_seed: int) -> None:
        random.seed(seed)
        np.random.seed(seed)
        self.net = Net()
        self.optimizer = chainer.optimizers.MomentumSGD(Task.RATE, Task.MOMENTUM).setup(self.net)
        data = chainer.datasets.TupleDataset(*rows(data_seed), np.arange(len(rows(data_seed)[0])))
        self.iterator = chainer.iterators.SerialIterator(data, Task.BATCH)
        self.updater = chainer.training.StandardUpdater(
            self.iterator, self.optimizer, loss_func=self.loss
        )
        self.trainer = chainer.training.Trainer(self.updater, out=".")
        self.shift = extensions.ExponentialShift("lr", Task.DECAY)
        self.trainer.extend(self.shift, trigger=(1, "iteration"), priority=BEFORE_SAVES)
        # Of these two, whatever a writer is told to leave out.
        self.serialize = {OPTIMIZER: self.optimizer.serialize, MODEL: self.net.serialize}
        self.last: Any = None
        self.batch: Any = None
        self.done = 0

    def loss(self, x: Any, wanted: Any, numbers: Any) -> Any:
        self.batch = numbers
        self.last = F.mean_squared_error(self.net(x), wanted)
        return self.last

    @property
    def step(self) -> int:
        return int(self.updater.iteration) + self.done

    def parts(self) -> dict[str, Any]:
        """What a trainer stores, beside counts of its own."""
        return {
            MODEL: self.net, OPTIMIZER: self.optimizer, SCHEDULER: self.shift, DATA: self.iterator,
        }  # fmt: skip

    def entries(self) -> Entries:
        words = np.random.get_state(legacy=False)["state"]
        yield f"{RNG}/numpy", np.append(words["key"], words["pos"])
        yield f"{SCHEDULER}/t", self.shift._t  # the rate follows from it, once the trainer runs
        for name, serialize in self.serialize.items():
            serializer = chainer.serializers.DictionarySerializer()
            serialize(serializer)
            yield from ((f"{name}/{path}", each) for path, each in serializer.target.items())

    def tell_to(self, recorder: Recorder, settle: Callable[[], object]) -> None:
        """Before a restore: that wants all extensions there, with their triggers."""
        # extend() writes attributes, which a method has not.
        told = functools.partial(self.tell, recorder, settle)
        self.trainer.extend(told, "told", trigger=(1, "iteration"), priority=AFTER_SAVES)
        begins = functools.partial(lambda _: recorder.saving(self.step, settle))
        self.trainer.extend(begins, "begins", trigger=(1, "iteration"), priority=BEFORE_SAVES)
        self.trainer.stop_trigger = lambda _: self.step >= STEPS

    def tell(self, recorder: Recorder, settle: Callable[[], object], _: Any) -> None:
        recorder.note(self.step, float(self.last.array), self.batch, settle)


class Snapshot:
    """extensions.snapshot(), as it comes: of the whole trainer."""

    def __init__(self, training: Own, job: Job) -> None:
        self.training = training
        self.directory = job.place
        for name, part in training.parts().items():
            if name not in job.saved:
                part.serialize = lambda _: None
        self.add(training.trainer)

    def add(self, trainer: Any) -> None:
        trainer.out = str(self.directory)
        self.extend(extensions.snapshot(filename=SNAPSHOT))

    def extend(self, saver: Any) -> None:
        trigger = (INTERVAL, "iteration")
        self.training.trainer.extend(saver, "saver", trigger=trigger, priority=-100)

    def settle(self) -> None:
        """Nothing is left to do when the extension returns."""

    def restore(self) -> int:
        step, path = newest(self.directory, "snapshot-*")
        chainer.serializers.load_npz(path, self.training.trainer)
        return step


class SnapshotWithRng(Snapshot):
    """The same, and an extension that stores the generators."""

    def add(self, trainer: Any) -> None:
        trainer.extend(Generators(), "generators", trigger=(STEPS + 1, "iteration"))
        super().add(trainer)


class Generators(chainer.training.Extension):  # type: ignore[misc]
    """NumPy's global one, that dropout and the iterator draw from."""

    def __call__(self, _: Any) -> None:
        """It only stores."""

    def serialize(self, serializer: Any) -> None:
        _, words, place, has_gauss, gauss = np.random.get_state()
        words = serializer("words", np.array(words))
        numbers = [serializer(name, each) for name, each in
                   (("place", place), ("has_gauss", has_gauss), ("gauss", gauss))]  # fmt: skip
        if isinstance(serializer, chainer.serializer.Deserializer):
            np.random.set_state(("MT19937", words, *numbers))


class ModelNpz(Snapshot):
    """save_npz() of the model alone."""

    def add(self, trainer: Any) -> None:
        self.extend(functools.partial(self.save))

    def save(self, _: Any) -> None:
        net = self.training.net
        chainer.serializers.save_npz(self.directory / f"model-{self.training.step}.npz", net)

    def restore(self) -> int:
        step, path = newest(self.directory, "model-*.npz")
        chainer.serializers.load_npz(path, self.training.net)
        self.training.done = step
        return step


class DeepFreeze(Snapshot):
    """The extension, as it comes."""

    def add(self, trainer: Any) -> None:
        every = df.every(steps=INTERVAL)
        run = self.directory / "run"
        self.checkpointer = df.Checkpointer(run, every=every, profile="latency")
        self.extension = extension.DeepFreezeExtension(self.checkpointer)
        trainer.extend(self.extension)

    def settle(self) -> None:
        self.checkpointer.wait()

    def restore(self) -> int:
        return int(self.extension.resume(self.training.trainer))


WRITERS = {
    "chainer-snapshot": Snapshot, "chainer-snapshot-rng": SnapshotWithRng,
    "chainer-npz": ModelNpz, "df": DeepFreeze,
}  # fmt: skip


def run(job: Job, data_seed: int, voice: Voice) -> None:
    with threadpoolctl.threadpool_limits(job.threads, "blas"):
        training = Own(job.seed, data_seed)
        recorder = Recorder(job, voice, training.entries)
        writer = WRITERS[job.writer](training, job) if job.writer else None
        training.tell_to(recorder, writer.settle if writer else int)
        if writer is not None and job.resumes:
            recorder.restored(writer.restore())
        if job.fault == OTHER_ORDER and job.resumes:
            next(training.iterator)
        training.trainer.run()
