"""Keras 3: a callback that saves while fit() runs, and resumes it in the middle of an epoch."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import keras

from deepfreeze.base.arguments import absolute
from deepfreeze.checkpointer import Checkpointer
from deepfreeze.errors import MismatchError
from deepfreeze.frameworks.in_use.rng import RNG
from deepfreeze.frameworks.keras.variables import optimizers_of
from deepfreeze.interval.policy import Every, Keep
from deepfreeze.trainers.keras.resume import Batches, CallbackState, PassedOver

if TYPE_CHECKING:
    from deepfreeze.trainers.keras.graph import GraphCapture

log = logging.getLogger("deepfreeze")

Logs = Mapping[str, Any] | None


class DeepFreezeCallback(keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
    """Saves the run while fit() trains; a later fit() resumes from the newest checkpoint.

    `run` is a directory, or a Checkpointer that the caller closes. `every`: "epoch" saves at the
    end of each epoch, and if another callback stops training within one; df.every(...) saves after
    the batches that it chooses, counted over all epochs; None saves after each batch, or after
    those that the given Checkpointer chooses. The default is "epoch", unless a Checkpointer with an
    `every` of its own is given. `keep` as for a Checkpointer. With steps_per_execution=k one call
    of k batches counts as k.

    A checkpoint holds the model (weights, seed generators, optimizer, metrics), df.RNG(), the place
    in the epoch, and the counts of each of `callbacks`: its plain attributes that are not arguments
    of its constructor. In fit()'s list this callback comes after those.

    `mode`: with "window" the values are taken when this callback is called. With "after_update", on
    tensorflow, each variable is taken within the training graph, right after its update, at steps
    that `every` counts; with steps_per_execution=k this can be any of the k. This checkpoint
    lacks changes that other callbacks make after a batch.

    Works on the backends tensorflow, torch and jax. fit() must get the same batches in each
    process: use shuffle=False, and an order that follows from a seed and the epoch. Batches that
    the resumed epoch was trained on before are drawn again and passed over; other callbacks see
    them with empty logs.

    fit() raises MismatchError if the model is another one, or if the epoch has fewer batches than
    were trained on. For the thread that calls fit().
    """

    def __init__(
        self,
        run: str | os.PathLike[str] | Checkpointer,
        *,
        every: Every | Literal["epoch", "default"] | None = "default",
        keep: Keep | None = None,
        callbacks: Sequence[Any] = (),
        mode: Literal["window", "after_update"] = "window",
    ) -> None:
        super().__init__()
        if every == "default":
            has_own = isinstance(run, Checkpointer) and run.policy.has_rule
            every = None if has_own else "epoch"
        if mode == "after_update" and (every == "epoch" or keras.backend.backend() != "tensorflow"):
            raise ValueError(
                "DeepFreezeCallback: mode after_update is for the backend tensorflow, and "
                "every=None or df.every(steps=...)"
            )
        self._in_graph = mode == "after_update"
        self._graph: GraphCapture | None = None
        self._by_epoch = every == "epoch"
        self._options: dict[str, Any] = {"every": None if every == "epoch" else every, "keep": keep}
        self._path = None if isinstance(run, Checkpointer) else absolute(run, "run")
        self._ckpt = run if isinstance(run, Checkpointer) else None
        if self._ckpt is not None and any(self._options.values()):
            raise ValueError("DeepFreezeCallback: a Checkpointer has its own `every` and `keep`")
        self._callbacks = CallbackState.of_all(callbacks)
        self._rng = RNG()
        self._progress: dict[str, Any] = {
            "epoch": 0, "batch": 0, "step": 0, "stopped": False, "drawn": None
        }  # fmt: skip
        self._batches: Batches | None = None
        self._passed_over: PassedOver | None = None
        self._resumes = False
        self._cut_short = False

    def __repr__(self) -> str:
        run = self._path if self._ckpt is None else self._ckpt.path
        return f"<{type(self).__name__} of {run}>"

    @property
    def state(self) -> dict[str, Any]:
        """The saved state: for a Checkpointer's restore() outside fit(), after set_model()."""
        return {
            "model": self.model,
            "callbacks": self._callbacks,
            "progress": self._progress,
            "rng": self._rng,
        }

    def on_train_begin(self, logs: Logs = None) -> None:
        """Restores the newest checkpoint, if there is one."""
        self._passed_over = None  # left by a fit() that was interrupted
        self.model._initial_epoch = None
        self._batches = Batches(self.model)
        if self._ckpt is None:
            assert self._path is not None
            self._ckpt = Checkpointer(self._path, **self._options)
        if keras.backend.backend() == "torch":
            for optimizer in optimizers_of(self.model):
                self._ckpt.attach(optimizer)
        if self._in_graph:
            self._attach_graph()
        self._resumes = self._ckpt.restore(self.state) is not None
        if self._resumes:
            self.model._initial_epoch = self._first_epoch()
            # Batches of this epoch are drawn later, batch by batch.
            self._batches.pass_over((self._progress["drawn"] or 0) - self._progress["batch"])

    def _attach_graph(self) -> None:
        from deepfreeze.trainers.keras.graph import GraphCapture

        assert self._ckpt is not None
        if not self._ckpt.policy.counts_steps_alone:
            raise ValueError(
                "DeepFreezeCallback: mode after_update must know in advance which step is "
                f"saved, but the policy is {self._ckpt.policy}: use df.every(steps=...)"
            )
        GraphCapture.remove(self.model)  # left by a fit() that was interrupted
        self._graph = GraphCapture(self.model)

    def _first_epoch(self) -> int:
        epochs: int = self.params["epochs"]
        epoch: int = self._progress["epoch"]
        if self._progress["stopped"]:
            log.warning("a callback stopped this run after %d epochs: fit() does not train", epoch)
        return epochs if self._progress["stopped"] else epoch

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Passes over the batches that were trained on before."""
        self.model._initial_epoch = None  # fit() has read it, and a later fit() begins anew
        resumes, self._resumes, self._cut_short = self._resumes, False, False
        batch = self._progress["batch"] if resumes and epoch == self._progress["epoch"] else 0
        self._progress.update(epoch=epoch, batch=batch)
        if batch:
            assert self._batches is not None
            self._batches.warn_if_shuffled()
            self._passed_over = PassedOver(self.model, batch, self._restore_again)

    def _restore_again(self) -> None:
        assert self._ckpt is not None
        self._ckpt.restore(self.state, self._progress["step"])

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Has the next batches passed over, or tells the graph at which step to take the values."""
        if self._passed_over is not None:
            self._passed_over.begin_batch()
        elif self._graph is not None:
            assert self._ckpt is not None
            done, policy = self._progress["step"], self._ckpt.policy
            offsets = range(self.model.steps_per_execution, 0, -1)
            self._graph.want(next((each for each in offsets if policy.due(done + each)), None))

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Saves if `every` asks for it."""
        if self._passed_over is not None and self._is_passed_over(self._passed_over):
            return
        if self._graph is not None:
            self._save_taken(logs)
        assert self._batches is not None
        progress = self._progress
        # Keras counts an epoch's last execution as a whole one, though fewer batches were left.
        done = min(batch + 1, self.params["steps"] or batch + 1)
        step = progress["step"] + done - progress["batch"]
        progress.update(step=step, batch=done, drawn=self._batches.drawn)
        self._cut_short = bool(self.model.stop_training)
        assert self._ckpt is not None
        if self._graph is not None:
            return
        if not self._by_epoch:
            self._ckpt.step(progress["step"], self.state, _numbers(logs))
        elif self._cut_short:  # by a limit of time, for example: the rest of the epoch is to come
            self._ckpt.save(progress["step"], self.state, _numbers(logs))

    def _is_passed_over(self, passed_over: PassedOver) -> bool:
        """Whether this call of fit()'s train_function trained nothing."""
        if not passed_over.is_over:
            return True
        self._passed_over = None
        if not passed_over.has_trained:
            self._restore_again()  # other callbacks have just counted batches a second time
        return not passed_over.has_trained

    def _save_taken(self, logs: Logs) -> None:
        assert self._ckpt is not None
        assert self._graph is not None
        taken = self._graph.take()
        if taken is None:
            return
        offset, model = taken
        epoch, batch, step = (self._progress[name] for name in ("epoch", "batch", "step"))
        assert self._batches is not None
        later = self.model.steps_per_execution - offset
        drawn = self._batches.drawn
        progress = {
            "epoch": epoch, "batch": batch + offset, "step": step + offset, "stopped": False,
            "drawn": None if drawn is None else drawn - later,
        }  # fmt: skip
        state = {**self.state, "model": model, "progress": progress}
        is_last = later == 0  # fit() has numbers of the last step alone
        self._ckpt.save(step + offset, state, _numbers(logs if is_last else None))

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Saves if `every` is "epoch"."""
        if self._passed_over is not None:
            self._passed_over = None
            self._restore_again()
            if self.model.stop_training:  # another callback has, in the middle of it
                return
            raise MismatchError(
                f"resume epoch {epoch}: it was saved after {self._progress['batch']} batches, and "
                "has fewer now: give fit() the same data as then"
            )
        if self._cut_short:
            return
        stopped = bool(self.model.stop_training)
        assert self._batches is not None
        drawn = self._batches.drawn
        self._progress.update(epoch=epoch + 1, batch=0, stopped=stopped, drawn=drawn)
        if self._by_epoch:
            assert self._ckpt is not None
            self._ckpt.save(self._progress["step"], self.state, _numbers(logs))

    def on_train_end(self, logs: Logs = None) -> None:
        """Waits for saves in flight, if this callback has made the Checkpointer."""
        self.model._initial_epoch = None
        self._batches = None
        if self._graph is not None:
            self._graph.remove(self.model)
            self._graph = None
        if self._path is not None and self._ckpt is not None:
            self._ckpt.close()
            self._ckpt = None


def _numbers(logs: Logs) -> dict[str, float]:
    return {name: value for name, value in (logs or {}).items() if isinstance(value, (int, float))}
