"""The ranks of torch.distributed."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from deepfreeze.ranks.store_ranks import LateError, StoreRanks

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class TorchStoreRanks(StoreRanks):
    """Ranks that talk through a store of torch.distributed, under a name of their own.

    Any backend will do. A rank that waits blocks its process's connection to the store, so any
    other thread of the program that uses the store waits as well. If a rank does not answer within
    `timeout_seconds`, the others get a TimeoutError.
    """

    # The store is Any: torch's stubs are out of date, and know only values that are text.
    def __init__(
        self, store: Any, name: str, rank: int, world_size: int, *, timeout_seconds: float = 900.0
    ) -> None:
        super().__init__(rank, world_size, timeout_seconds)
        self._name = name
        self.connect(store)

    def connect(self, store: Any) -> None:
        """From now on the ranks talk through another connection to the same store."""
        from torch.distributed.distributed_c10d import PrefixStore

        self._store: Any = PrefixStore(self._name, store)

    def _set(self, key: str, value: bytes) -> None:
        with _as_our_errors():
            self._store.set(key, value)

    def _take(self, keys: Sequence[str]) -> list[bytes]:
        keys = list(keys)
        with _as_our_errors():
            self._store.wait(keys, timedelta(seconds=self.timeout_seconds))
            if self._store.has_extended_api():
                found: list[bytes] = self._store.multi_get(keys)
            else:
                found = [self._store.get(key) for key in keys]
            for key in keys:
                self._store.delete_key(key)
        return found


class TorchRanks(TorchStoreRanks):
    """The ranks of torch.distributed, or of one group of them.

    They talk through the store over which the program's ranks found each other. All ranks of a
    group make theirs in the same order.
    """

    _made: ClassVar[dict[str, int]] = {}  # how many were made, by group

    def __init__(
        self, group: ProcessGroup | None = None, *, timeout_seconds: float = 900.0
    ) -> None:
        import torch.distributed as dist
        from torch.distributed.distributed_c10d import _get_default_store

        members = dist.get_process_group_ranks(group or dist.group.WORLD)
        # Not a clone of it: if rank 0 has ended already, connecting takes minutes.
        super().__init__(
            _get_default_store(),
            self._next_name(members),
            members.index(dist.get_rank()),
            len(members),
            timeout_seconds=timeout_seconds,
        )

    @classmethod
    def _next_name(cls, members: list[int]) -> str:
        group = f"deepfreeze/{len(members)}-{zlib.crc32(repr(members).encode()):08x}"
        number = cls._made[group] = cls._made.get(group, 0) + 1
        return f"{group}/{number}"


def ranks_if_several() -> TorchRanks | None:
    """The ranks of torch.distributed, if it is set up for more than one process."""
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return None
    return TorchRanks()


@contextlib.contextmanager
def store_errors(call: str, timeout: timedelta) -> Iterator[None]:
    """Turns a store's errors into TimeoutError or ConnectionError, which name the call."""
    try:
        with _as_our_errors():
            yield
    except LateError as cause:
        raise TimeoutError(
            f"{call}: a rank did not come within {timeout.total_seconds():g} s; all ranks of a job "
            f"make the same calls ({cause})"
        ) from cause
    except ConnectionError as cause:
        raise ConnectionError(f"{call}: {cause}") from cause


@contextlib.contextmanager
def _as_our_errors() -> Iterator[None]:
    """Tells torch's errors apart by their text: all are RuntimeErrors."""
    try:
        yield
    except RuntimeError as cause:
        text = str(cause)
        if "timeout" in text.lower() or "timed out" in text.lower():
            raise LateError(text.splitlines()[0]) from cause
        raise ConnectionError(text) from cause
