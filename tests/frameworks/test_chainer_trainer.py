"""Chainer's Trainer with the extension: when and how it saves, and how it resumes."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepfreeze as df
from deepfreeze.chainer import DeepFreezeExtension

chainer_net = pytest.importorskip("tests.frameworks.chainer_net")

chainer: Any = chainer_net.chainer
F = chainer.functions
ROOT = Path(__file__).resolve().parents[2]


class Counter(chainer.Chain):
    """Each update adds 1 to all of its weights."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.w = chainer.Parameter(np.zeros((512, 512), np.float32))

    def loss(self, _: Any) -> Any:
        return -F.sum(self.w)


def trainer_of(net: Any, place: Path, iterations: int) -> Any:
    optimizer = chainer.optimizers.SGD(lr=1.0).setup(net)
    iterator = chainer.iterators.SerialIterator(np.zeros((8, 1), np.float32), 2)
    updater = chainer.training.StandardUpdater(iterator, optimizer, loss_func=net.loss)
    return chainer.training.Trainer(updater, (iterations, "iteration"), out=str(place))


def test_its_asynchronous_snapshot_mixes_iterations_and_ours_does_not(tmp_path: Path) -> None:
    """Its writer's thread comes late by two iterations, as on a slow disk."""
    extensions = chainer.training.extensions
    trained = threading.Event()

    def save_late(path: str, target: dict[str, Any]) -> None:
        trained.wait(60)
        chainer.serializers.save_npz(path, target)

    writer = extensions.snapshot_writers.ThreadWriter(savefun=save_late)
    trainer = trainer_of(Counter(), tmp_path, 4)
    theirs = extensions.snapshot(filename="theirs-{.updater.iteration}", writer=writer)
    trainer.extend(theirs, trigger=(2, "iteration"))
    ours = DeepFreezeExtension(tmp_path / "ours", every=df.every(steps=2))
    trainer.extend(ours)
    trainer.extend(lambda t: t.updater.iteration == 4 and trained.set(), name="go", priority=500)
    trainer.run()
    with np.load(tmp_path / "theirs-2") as file:
        found = int(file["updater/iteration"]), float(file["updater/model:main/w"].max())
    assert found == (2, 4.0)
    with df.Checkpointer(tmp_path / "ours") as ckpt:
        loaded = ckpt.load(2)["trainer"]
    assert (loaded["updater/iteration"], loaded["updater/model:main/w"].max()) == (2, 2.0)


class Reported(Counter):
    def loss(self, x: Any) -> Any:
        loss = super().loss(x)
        chainer.report({"loss": loss, "all": self.w.array, "text": "no number"}, self)
        chainer.report({"rate": 0.5, "diverged": np.float32("nan")})
        chainer.report({"word": np.str_("none"), "root": np.complex64(1j), "empty": np.array(None)})
        return loss


def test_metrics_are_what_the_iteration_reports(tmp_path: Path) -> None:
    trainer = trainer_of(Reported(), tmp_path, 5)
    trainer.extend(DeepFreezeExtension(tmp_path / "run", keep=df.keep(best=("main/loss", "max"))))
    trainer.run()
    with df.Checkpointer(tmp_path / "run") as ckpt:
        (info,) = [each for each in ckpt.checkpoints() if each.step == 1]  # loss falls: 1 is best
        metrics = dict(info.metrics)
        diverged = metrics.pop("diverged")
        assert metrics == {"main/loss": 0.0, "rate": 0.5}
        assert diverged != diverged


def test_every_save_of_the_extension_is_as_of_its_own_iteration(tmp_path: Path) -> None:
    trainer = trainer_of(Counter(), tmp_path, 6)
    extension = DeepFreezeExtension(tmp_path / "run")
    assert extension.resume(trainer) == 0
    trainer.extend(extension)
    trainer.run()
    with df.Checkpointer(tmp_path / "run") as ckpt:
        found = [ckpt.load(step)["trainer"]["updater/model:main/w"].max() for step in ckpt.steps()]
    assert found == [1, 2, 3, 4, 5, 6]


def test_a_given_checkpointer_stays_open_and_has_rules_of_its_own(tmp_path: Path) -> None:
    with df.Checkpointer(tmp_path / "run", every=df.every(steps=2)) as ckpt:
        with pytest.raises(ValueError, match="Checkpointer's own"):
            DeepFreezeExtension(ckpt, every=df.every(steps=3))
        trainer = trainer_of(Counter(), tmp_path, 5)
        trainer.extend(DeepFreezeExtension(ckpt))
        trainer.run()
        assert ckpt.steps() == [2, 4]


def test_an_extension_that_was_not_saved_is_named(tmp_path: Path) -> None:
    trainer = trainer_of(Counter(), tmp_path, 1)
    trainer.extend(DeepFreezeExtension(tmp_path / "run"))
    trainer.run()
    net = Counter()
    other = trainer_of(net, tmp_path, 2)
    other.extend(chainer.training.extensions.LogReport(), name="report")
    extension = DeepFreezeExtension(tmp_path / "run")
    other.extend(extension)
    with pytest.raises(df.MismatchError, match=r"missing .*trainer\.extensions/report/_log"):
        extension.resume(other)
    assert net.w.array.max() == 0
    assert extension.resume(other, strict=False) == 1
    assert net.w.array.min() == 1
    other.run()
    assert net.w.array.min() == 2


class OwnUpdater(chainer.training.Updater):
    """Serialises its parts under names that are not StandardUpdater's."""

    epoch, epoch_detail, previous_epoch_detail, is_new_epoch = 0, 0.0, 0.0, False

    def __init__(self, net: Any) -> None:
        self.net = net
        self.optimizer = chainer.optimizers.Adam().setup(net)
        self.data = chainer.iterators.SerialIterator(np.arange(8), 2)
        self.data.order_sampler._random = np.random.RandomState(3)
        self.iteration = 0

    def finalize(self) -> None:
        pass

    def get_optimizer(self, name: str) -> Any:
        return self.optimizer

    def get_all_optimizers(self) -> dict[str, Any]:
        return {"main": self.optimizer}

    def update(self) -> None:
        self.optimizer.update(self.net.loss, self.data.next())
        self.iteration += 1

    def serialize(self, serializer: Any) -> None:
        self.net.serialize(serializer["net"])
        self.optimizer.serialize(serializer["own"])
        self.data.serialize(serializer["data"])
        self.iteration = serializer("iteration", self.iteration)


def test_an_updater_of_the_programs_own_is_resumed(tmp_path: Path) -> None:
    def run(iterations: int, place: str) -> Any:
        np.random.seed(iterations)
        updater = OwnUpdater(Counter())
        trainer = chainer.training.Trainer(updater, (iterations, "iteration"), out=str(tmp_path))
        trainer.extend(extension := DeepFreezeExtension(tmp_path / place))
        extension.resume(trainer)
        trainer.run()
        return chainer_net.serialized(updater)

    run(3, "resumed")
    run(3, "resumed")  # has nothing left to do
    with df.Checkpointer(tmp_path / "resumed") as ckpt:
        loaded = ckpt.load()["trainer"]
    assert {"updater/own/w/m", "updater/data/order", "updater/net/w"} <= loaded.keys()
    resumed, whole = run(6, "resumed"), run(6, "whole")
    for name in ("net/w", "own/w/m", "own/w/v"):
        assert np.array_equal(resumed[name], whole[name])


class Distance(chainer.training.Extension):
    """Reports a value that is best at the tenth iteration. `calls` is lost by each resume."""

    priority = 500
    calls = 0

    def __init__(self) -> None:
        self.calls = 0
        self.factor = 2.0

    def __call__(self, trainer: Any) -> None:
        self.calls += 1
        trainer.observation["distance"] = float(abs(trainer.updater.iteration - 10))


def stopped_early(place: Path) -> Any:
    trigger = chainer.training.triggers.EarlyStoppingTrigger(
        (1, "iteration"), "distance", patience=8, max_trigger=(40, "iteration")
    )
    trainer = trainer_of(Counter(), place, 1)
    trainer.stop_trigger = trigger
    trainer.extend(Distance(), name="distance")
    return trainer


@pytest.mark.filterwarnings("ignore:extensions/distance")
def test_early_stopping_goes_on_counting(tmp_path: Path) -> None:
    trainer = stopped_early(tmp_path)
    trainer.extend(DeepFreezeExtension(tmp_path / "run"))
    trainer.run()
    stop = trainer.updater.iteration
    assert stop == 18
    for step in (5, 14):
        trainer = stopped_early(tmp_path)
        extension = DeepFreezeExtension(tmp_path / "run", every=df.every(steps=100))
        trainer.extend(extension)
        assert extension.resume(trainer, step) == step
        trainer.run()
        assert trainer.updater.iteration == stop


def test_numbers_that_no_serialize_saves_are_warned_of_once(tmp_path: Path) -> None:
    trainer = stopped_early(tmp_path)
    trainer.extend(DeepFreezeExtension(tmp_path / "run"))
    with pytest.warns(UserWarning, match="Distance") as caught:
        trainer.run()
    texts = [str(each.message) for each in caught]
    assert [text for text in texts if "serialize" in text] == [
        "extensions/distance: Distance.calls changes, but no serialize() of Distance saves it"
    ]


def test_an_error_of_an_extension_is_no_trainer_that_was_not_started(tmp_path: Path) -> None:
    class Broken(chainer.training.Extension):
        def serialize(self, serializer: Any) -> None:
            raise RuntimeError("no state now")

    with df.Checkpointer(tmp_path / "run") as ckpt:
        trainer = trainer_of(Counter(), tmp_path, 1)
        ckpt.save(1, {"trainer": trainer}).wait()
        trainer.extend(Broken())
        with pytest.raises(df.EncodeError, match="no state now"):
            ckpt.save(2, {"trainer": trainer})


def test_generators_of_the_programs_own_are_given_to_the_extension(tmp_path: Path) -> None:
    generators = [np.random.RandomState(seed) for seed in (1, 2)]
    for generator in generators:
        trainer = trainer_of(Counter(), tmp_path, 1)
        trainer.extend(extension := DeepFreezeExtension(tmp_path / "run", rng=df.RNG(generator)))
        extension.resume(trainer)
        trainer.run()
    assert generators[1].permutation(9).tolist() == generators[0].permutation(9).tolist()


def test_the_example_of_the_documentation_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / "docs" / "frameworks" / "chainer.md").read_text()
    monkeypatch.chdir(tmp_path)
    for program in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        exec(program, {"__name__": "__main__"})
        exec(program, {"__name__": "__main__"})  # resumes, and has nothing left to do
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"mlp", "loop"}
    with df.Checkpointer("runs/mlp") as ckpt:
        assert ckpt.latest() == 40
    with df.Checkpointer("runs/loop") as ckpt:
        assert ckpt.latest() == 40
