"""The moments of a fit at which it can be saved: a batch, or an epoch, is over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lightning.pytorch.loops.loop import _Loop
from lightning.pytorch.utilities.exceptions import SIGTERMException

_WATCHED = ("on_advance_end", "on_run_start")


class Moments:
    """Calls back after validation, schedulers and all hooks of a batch, or of an epoch.

    Lightning has no hook that comes so late. If a metric came after the save, a resumed fit would
    lack it, because Lightning stores no metrics. So methods of its loops are wrapped until leave().
    """

    def __init__(
        self, fit_loop: Any, batch_over: Callable[[], object], epoch_over: Callable[[], object]
    ) -> None:
        self._fit_loop = fit_loop
        self._batch_over = batch_over
        self._epoch_over = epoch_over
        self._resumes = False
        self._loops = (fit_loop, fit_loop.epoch_loop)
        _call_behind(fit_loop, "on_advance_end", epoch_over)
        _call_behind(fit_loop.epoch_loop, "on_advance_end", self._look_at_batch)
        _call_behind(fit_loop.epoch_loop, "on_run_start", self._run_starts)

    def resumes(self) -> bool:
        """Called in on_train_start(), when the loops hold the state of one of these moments.

        Returns whether an epoch was over, so that Lightning begins the next one, and its loaders.
        """
        self._resumes = True
        total = self._fit_loop.epoch_progress.total
        is_over = bool(total.completed == total.ready)
        if is_over:
            self._forget_restart()
        return is_over

    def leave(self) -> None:
        """Unwraps the methods of the loops."""
        for loop in self._loops:
            for name in _WATCHED:
                vars(loop).pop(name, None)

    def _run_starts(self) -> None:
        if self._resumes:
            self._forget_restart()

    def _forget_restart(self) -> None:
        """Otherwise a restarted loop repeats the work that follows Lightning's own saves."""
        set_restarting(self._fit_loop, False)
        self._fit_loop._resuming_from_checkpoint = False
        self._fit_loop._loaded_from_state_dict = False

    def _look_at_batch(self) -> None:
        if not self._fit_loop.epoch_loop._num_ready_batches_reached():
            self._batch_over()


def set_restarting(fit_loop: Any, restarts: bool) -> None:
    """Sets it in the inner loops, too. FitLoop's own property would not store the given value."""
    _Loop.restarting.fset(fit_loop, restarts)


def _call_behind(loop: Any, name: str, action: Callable[[], object]) -> None:
    method = getattr(loop, name)

    def wrapped(*arguments: Any) -> None:
        try:
            method(*arguments)
        except SIGTERMException:  # the method raises it as its last act
            action()
            raise
        action()

    setattr(loop, name, wrapped)
