"""Finds the program's ranks without being told, and tells them of errors before a save."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from deepfreeze import _core
from deepfreeze.base.imported import imported
from deepfreeze.errors import code_of, message_of
from deepfreeze.frameworks.torch.ranks import ranks_if_several


def ranks_of_job() -> _core.Ranks | None:
    """The ranks of torch.distributed, if it is set up for more than one process."""
    if not imported("torch.distributed"):
        return None
    return ranks_if_several()


@contextlib.contextmanager
def declining(engine: _core.Engine) -> Iterator[None]:
    """Tells the other ranks of an error that comes before the engine is asked to save."""
    try:
        yield
    except BaseException as error:  # an interrupt, too, must not leave them a save apart
        engine.decline(code_of(error), message_of(error))
        raise
