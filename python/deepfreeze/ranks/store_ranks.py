"""Ranks that talk through a store of keys and values, which all of them see."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterator, Sequence


class StoreRanks(abc.ABC):
    """gather() and scatter() over set and take. For one thread; all ranks make the same calls.

    After an error the ranks are out of step, and the engine makes no further call.
    """

    def __init__(self, rank: int, world_size: int, timeout_seconds: float) -> None:
        self.rank = rank
        self.world_size = world_size
        self.timeout_seconds = timeout_seconds
        self._calls = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: rank {self.rank} of {self.world_size}>"

    def gather(self, data: bytes) -> list[bytes] | None:
        """On rank 0 the bytes of all ranks, by rank; None on the others. Collective."""
        with self._calling("gather"):
            if self.rank != 0:
                self._set(self._key(self.rank), data)
                return None
            return [data, *self._take([self._key(rank) for rank in range(1, self.world_size)])]

    def scatter(self, data: list[bytes]) -> bytes:
        """The bytes that rank 0 gives for the calling rank. Collective."""
        with self._calling("scatter"):
            if self.rank != 0:
                return self._take([self._key(self.rank)])[0]
            for rank, one in enumerate(data[1:], 1):
                self._set(self._key(rank), one)
            return data[0]

    @abc.abstractmethod
    def _set(self, key: str, value: bytes) -> None:
        """Makes the value visible to all."""

    @abc.abstractmethod
    def _take(self, keys: Sequence[str]) -> list[bytes]:
        """Waits for the values of all keys, and deletes them. LateError if one is late."""

    def _key(self, rank: int) -> str:
        return f"{self._calls}/{rank}"

    @contextlib.contextmanager
    def _calling(self, call: str) -> Iterator[None]:
        self._calls += 1
        try:
            yield
        except LateError as cause:
            raise TimeoutError(
                f"{call}: a rank did not come within {self.timeout_seconds:g} s; all ranks of a "
                "job make the same calls, unless Checkpointer(ranks=None) says that this one is "
                f"alone ({cause})"
            ) from cause
        except OSError as cause:
            raise ConnectionError(f"{call}: {cause}") from cause


class LateError(Exception):
    """A value did not come in time."""
