"""The ranks of an MPI job, by mpi4py."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from deepfreeze.ranks.polling import polls

if TYPE_CHECKING:
    from mpi4py import MPI

_TAGS = 32_768  # every MPI has at least this many


class MPIRanks:
    """The ranks of a communicator, MPI.COMM_WORLD by default. Making them is collective over it.

    Nothing waits inside MPI: a rank that does not answer within `timeout_seconds` is a
    TimeoutError on the others, and the ranks are not used any more. For the thread that may call
    MPI. Make one and keep it: its communicator is freed with MPI itself. ValueError for a
    communicator that has no ranks of one job.
    """

    def __init__(
        self, comm: MPI.Intracomm | None = None, *, timeout_seconds: float = 900.0
    ) -> None:
        from mpi4py import MPI

        given = MPI.COMM_WORLD if comm is None else comm
        if given == MPI.COMM_NULL or given.Is_inter():
            raise ValueError("ranks: the communicator is null, or joins two groups")
        self._mpi = MPI
        self.timeout_seconds = timeout_seconds
        self._calls = 0
        self._lent: list[tuple[Any, Any]] = []  # requests, and buffers that MPI may still use
        self._comm, request = given.Idup()  # keeps our messages apart from all others
        self._await("duplicate the communicator", request.Test)
        self.rank: int = self._comm.Get_rank()
        self.world_size: int = self._comm.Get_size()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: rank {self.rank} of {self.world_size}>"

    def gather(self, data: bytes) -> list[bytes] | None:
        """On rank 0 the bytes of all ranks, by rank; None on the others. Collective."""
        self._calls += 1
        if self.rank == 0:
            return [data, *(self._receive("gather", rank) for rank in range(1, self.world_size))]
        self._send(0, data)
        self._finish("gather")
        return None

    def scatter(self, data: list[bytes]) -> bytes:
        """The bytes that rank 0 gives for the calling rank. Collective."""
        self._calls += 1
        if self.rank != 0:
            return self._receive("scatter", 0)
        for rank, one in enumerate(data[1:], 1):
            self._send(rank, one)
        self._finish("scatter")
        return data[0]

    @property
    def _tag(self) -> int:
        return self._calls % _TAGS

    def _send(self, rank: int, data: bytes) -> None:
        request = self._comm.Isend([data, self._mpi.BYTE], dest=rank, tag=self._tag)
        self._lent.append((request, data))

    def _finish(self, call: str) -> None:
        self._await(call, lambda: all(request.Test() for request, _ in self._lent))
        self._lent.clear()

    def _receive(self, call: str, rank: int) -> bytes:
        status = self._mpi.Status()
        message = self._await(
            call, lambda: self._comm.Improbe(source=rank, tag=self._tag, status=status)
        )
        data = bytearray(status.Get_count(self._mpi.BYTE))
        self._lent.append((message.Irecv([data, self._mpi.BYTE]), data))
        self._finish(call)  # the sender may have stopped in the middle
        return bytes(data)

    def _await(self, call: str, look: Callable[[], Any]) -> Any:
        """The first result that is not empty."""
        for _ in polls(self.timeout_seconds):
            if (seen := look()) is not None and seen is not False:
                return seen
        raise TimeoutError(f"{call}: a rank did not come within {self.timeout_seconds:g} s")
