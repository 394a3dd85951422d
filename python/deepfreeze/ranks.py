"""The other processes of the job, and how they talk to each other around a save or restore.

What a checkpointer needs of them is `_core.Ranks`: a rank, a world size, gather and scatter of
bytes. They are called by all ranks together, in the thread that calls the checkpointer.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from deepfreeze import _core
from deepfreeze.adapters.base import imported

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup

_FRAME_BYTES = 1024  # of each message, its length among them; what is longer follows
_LENGTH = struct.Struct("<Q")
_ROOM = _FRAME_BYTES - _LENGTH.size


class TorchRanks:
    """The ranks of torch.distributed, or of one group of them.

    Its messages go through a gloo group of their own, so the program may use any backend, and
    none of its collectives waits for them. Making one is collective: all ranks of the group do.
    A rank that does not answer within `timeout_seconds` is a TimeoutError on the others.
    """

    def __init__(
        self, group: ProcessGroup | None = None, *, timeout_seconds: float = 900.0
    ) -> None:
        import torch.distributed as dist

        self._timeout_seconds = timeout_seconds
        members = dist.get_process_group_ranks(group or dist.group.WORLD)
        with self._timing("start"):
            made = dist.new_group(
                members,
                backend="gloo",
                timeout=timedelta(seconds=timeout_seconds),
                use_local_synchronization=True,
            )
        self._group: ProcessGroup = made
        self.rank = dist.get_rank(made)
        self.world_size = dist.get_world_size(made)

    def gather(self, data: bytes) -> list[bytes] | None:
        """What all ranks gave, by rank, for rank 0."""
        import torch
        import torch.distributed as dist

        own = _frame(data)
        with self._timing("gather"):
            if self.rank != 0:
                dist.gather(own, group=self._group, group_dst=0)
                self._send_rest(data, 0)
                return None
            frames = [torch.empty_like(own) for _ in range(self.world_size)]
            dist.gather(own, frames, group=self._group, group_dst=0)
            return [
                data if rank == 0 else self._received(frame, rank)
                for rank, frame in enumerate(frames)
            ]

    def scatter(self, data: list[bytes]) -> bytes:
        """The caller's own of what rank 0 gave for each."""
        import torch
        import torch.distributed as dist

        own = torch.empty(_FRAME_BYTES, dtype=torch.uint8)
        with self._timing("scatter"):
            if self.rank != 0:
                dist.scatter(own, group=self._group, group_src=0)
                return self._received(own, 0)
            dist.scatter(own, [_frame(one) for one in data], group=self._group, group_src=0)
            for rank, one in enumerate(data[1:], 1):
                self._send_rest(one, rank)
            return data[0]

    def _send_rest(self, data: bytes, rank: int) -> None:
        import torch.distributed as dist

        if len(data) > _ROOM:
            dist.send(_tensor(data[_ROOM:]), group=self._group, group_dst=rank)

    def _received(self, frame: torch.Tensor, rank: int) -> bytes:
        import torch
        import torch.distributed as dist

        text = frame.numpy().tobytes()
        (size,) = _LENGTH.unpack_from(text)
        if size <= _ROOM:
            return text[_LENGTH.size : _LENGTH.size + size]
        rest = torch.empty(size - _ROOM, dtype=torch.uint8)
        dist.recv(rest, group=self._group, group_src=rank)
        return text[_LENGTH.size :] + rest.numpy().tobytes()

    @contextlib.contextmanager
    def _timing(self, call: str) -> Iterator[None]:
        """gloo has one type for all its errors."""
        try:
            yield
        except RuntimeError as cause:
            text = str(cause)
            if "timed out" in text.lower() or "timeout" in text.lower():
                raise TimeoutError(
                    f"{call}: a rank did not come within {self._timeout_seconds:g} s; every rank "
                    f"makes the same calls, unless ranks=None is given ({text})"
                ) from cause
            raise ConnectionError(f"{call}: {text}") from cause


def _tensor(data: bytes) -> torch.Tensor:
    import torch

    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _frame(data: bytes) -> torch.Tensor:
    head = _LENGTH.pack(len(data)) + data[:_ROOM]
    return _tensor(head.ljust(_FRAME_BYTES, b"\0"))


def ranks_of_job() -> _core.Ranks | None:
    """Those of torch.distributed, where the program has set it up for more than one process."""
    if not imported("torch.distributed"):
        return None
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return None
    return TorchRanks()
