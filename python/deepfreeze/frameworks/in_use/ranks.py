"""Finds the program's ranks without being told, and tells them of errors before a save."""

from __future__ import annotations

import contextlib
from types import TracebackType

from deepfreeze import _core
from deepfreeze.base.imported import imported
from deepfreeze.errors import code_of, message_of
from deepfreeze.frameworks.torch.ranks import ranks_if_several


def ranks_of_job() -> _core.Ranks | None:
    """The ranks of torch.distributed, if it is set up for more than one process."""
    if not imported("torch.distributed"):
        return None
    return ranks_if_several()


def declining(
    engine: _core.Engine, ranks: _core.Ranks | None
) -> contextlib.AbstractContextManager[None]:
    """Tells the other ranks, if there are some, of an error before the engine is asked to save."""
    return contextlib.nullcontext() if ranks is None else _Declining(engine)


class _Declining(contextlib.AbstractContextManager[None]):
    def __init__(self, engine: _core.Engine) -> None:
        self._engine = engine

    def __enter__(self) -> None:
        """Begins the time in which an error is told."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:  # an interrupt, too, must not leave them a save apart
            self._engine.decline(code_of(error), message_of(error))
