"""The ranks that a program has without being told, and what they are told of each other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from deepfreeze import _core
from deepfreeze.adapters.base import imported
from deepfreeze.errors import code_of, message_of
from deepfreeze.ranks.torch_ranks import TorchRanks


def ranks_of_job() -> _core.Ranks | None:
    """Those of torch.distributed, where the program has set it up for more than one process."""
    if not imported("torch.distributed"):
        return None
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return None
    return TorchRanks()


@contextlib.contextmanager
def declining(engine: _core.Engine) -> Iterator[None]:
    """What fails here, before the engine is asked to save, is told to the other ranks."""
    try:
        yield
    except BaseException as error:  # an interrupt, too, must not leave them a save apart
        engine.decline(code_of(error), message_of(error))
        raise
