"""The other processes of the job, and how they talk to each other around a save or restore.

What a checkpointer needs of them is `_core.Ranks`: a rank, a world size, gather and scatter of
bytes. They are called by all ranks together, in the thread that calls the checkpointer.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from deepfreeze import _core
from deepfreeze.adapters.base import imported
from deepfreeze.errors import code_of

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class TorchRanks:
    """The ranks of torch.distributed, or of one group of them.

    They talk through the store over which the program's ranks found each other: any backend will
    do, and none of the program's collectives waits for them. All ranks of a group make theirs in
    the same order. One that does not answer within `timeout_seconds` is a TimeoutError on the
    others.
    """

    _made: ClassVar[dict[str, int]] = {}  # how many, by group

    def __init__(
        self, group: ProcessGroup | None = None, *, timeout_seconds: float = 900.0
    ) -> None:
        import torch.distributed as dist
        from torch.distributed.distributed_c10d import PrefixStore, _get_default_store

        members = dist.get_process_group_ranks(group or dist.group.WORLD)
        self.rank = members.index(dist.get_rank())
        self.world_size = len(members)
        self._timeout = timedelta(seconds=timeout_seconds)
        self._calls = 0
        # Any: its stubs are those of an older store, of texts only.
        self._store: Any = PrefixStore(self._next_name(members), _get_default_store())

    @classmethod
    def _next_name(cls, members: list[int]) -> str:
        group = f"deepfreeze/{len(members)}-{zlib.crc32(repr(members).encode()):08x}"
        number = cls._made[group] = cls._made.get(group, 0) + 1
        return f"{group}/{number}"

    def gather(self, data: bytes) -> list[bytes] | None:
        """What all ranks gave, by rank, for rank 0."""
        with self._calling("gather"):
            if self.rank != 0:
                self._store.set(self._key(self.rank), data)
                return None
            return [data, *self._take([self._key(rank) for rank in range(1, self.world_size)])]

    def scatter(self, data: list[bytes]) -> bytes:
        """The caller's own of what rank 0 gave for each."""
        with self._calling("scatter"):
            if self.rank != 0:
                return self._take([self._key(self.rank)])[0]
            for rank, one in enumerate(data[1:], 1):
                self._store.set(self._key(rank), one)
            return data[0]

    def _key(self, rank: int) -> str:
        return f"{self._calls}/{rank}"

    def _take(self, keys: Sequence[str]) -> list[bytes]:
        """The values of all keys, once they are there; then they are gone."""
        keys = list(keys)
        self._store.wait(keys, self._timeout)
        if self._store.has_extended_api():
            found: list[bytes] = self._store.multi_get(keys)
        else:
            found = [self._store.get(key) for key in keys]
        for key in keys:
            self._store.delete_key(key)
        return found

    @contextlib.contextmanager
    def _calling(self, call: str) -> Iterator[None]:
        """torch raises a RuntimeError whatever happens."""
        self._calls += 1
        try:
            yield
        except RuntimeError as cause:
            text = str(cause)
            if "timeout" in text.lower() or "timed out" in text.lower():
                raise TimeoutError(
                    f"{call}: a rank did not come within {self._timeout.total_seconds():g} s; all "
                    "ranks of a job make the same calls, unless Checkpointer(ranks=None) says "
                    f"that this one is alone ({text.splitlines()[0]})"
                ) from cause
            raise ConnectionError(f"{call}: {text}") from cause


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
        engine.decline(code_of(error), str(error) or type(error).__name__)
        raise
