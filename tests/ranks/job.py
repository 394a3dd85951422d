"""A job of several ranks: forked children of a process that has imported torch.

The parent imports, forks, kills and waits, nothing else: it must have started no threads.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import select
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch._dynamo  # an optimizer's first use imports it: once, not in every child
import torch.distributed as dist
import torch.distributed.fsdp
import torch.distributed.tensor

from tests.e2e.fork_server import REPORT_BYTES_MAX, Say, run_child

COLLECTIVE_SECONDS = 60.0  # of the job's own messages, after which a lost rank is an error
PART_SECONDS = 2.0

Work = Callable[[int, int, Say], object]  # rank, world size, a function that tells the parent


@dataclass(frozen=True)
class Place:
    """The machine of a rank."""

    interface: str = "lo"
    address: str = "127.0.0.1"
    enter: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class RankEnded:
    """How one rank ended."""

    status: int  # of wait(): 0 is well
    report: str

    @property
    def killed(self) -> bool:
        return os.WIFSIGNALED(self.status) and os.WTERMSIG(self.status) == signal.SIGKILL


class HungError(RuntimeError):
    """Ranks that were still there after the deadline."""


class Job:
    """Its processes, from their start to their end. Only those are signalled."""

    def __init__(self, world: int, work: Work, places: Sequence[Place] = ()) -> None:
        """Without `places` all ranks are here, on loopback."""
        self._places = places or [Place()] * world
        self._meeting = tempfile.TemporaryDirectory(prefix="df-ranks-")
        self._pids: dict[int, int] = {}
        self._reports: list[int] = []
        for rank in range(world):
            reader, writer = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(reader)
                run_child(lambda say, rank=rank: self._run(rank, world, work, say), writer)
            os.close(writer)
            self._pids[rank] = pid
            self._reports.append(reader)

    def _run(self, rank: int, world: int, work: Work, say: Say) -> None:
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        self._places[rank].enter()
        os.environ["GLOO_SOCKET_IFNAME"] = self._places[rank].interface
        torch.set_num_threads(1)
        timeout = timedelta(seconds=COLLECTIVE_SECONDS)
        store = self._meet(rank, timeout)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timeout)
        work(rank, world, say)
        self._part(store, rank, world)
        with contextlib.suppress(RuntimeError):  # another rank may be gone already
            dist.destroy_process_group()

    def _part(self, store: dist.Store, rank: int, world: int) -> None:
        """Rank 0 has the store in its process: it stays until all have read their last answer.

        Under torchrun the launcher has it, and stays longer.
        """
        with contextlib.suppress(RuntimeError):  # one that was killed does not come
            if rank:
                store.set(f"parts/{rank}", "")
            else:
                others = [f"parts/{other}" for other in range(1, world)]
                store.wait(others, timedelta(seconds=PART_SECONDS))

    def _meet(self, rank: int, timeout: timedelta) -> dist.Store:
        """As under torchrun, but on a port that the system chooses."""
        note = Path(self._meeting.name) / "port"
        address = self._places[0].address
        if rank == 0:
            store = dist.TCPStore(address, 0, is_master=True, timeout=timeout)
            (written := note.with_suffix(".tmp")).write_text(str(store.port))
            written.rename(note)
            return store
        while not note.exists():
            time.sleep(0.01)
        return dist.TCPStore(address, int(note.read_text()), is_master=False, timeout=timeout)

    def is_running(self, rank: int) -> bool:
        return not self._ends_by(rank, 0)

    def signal(self, rank: int, number: signal.Signals) -> None:
        """To a rank that has not been waited for, so that the number is still its own."""
        os.kill(self._pids[rank], number)

    def kill_all(self) -> None:
        for rank in self._pids:
            self.signal(rank, signal.SIGKILL)

    def wait(self, seconds: float) -> list[RankEnded]:
        """All ranks' ends. HungError, with every process gone, if one is late."""
        deadline = time.monotonic() + seconds
        late = [rank for rank in self._pids if not self._ends_by(rank, deadline)]
        for rank in late:
            self.signal(rank, signal.SIGUSR1)  # prints the stacks of its threads
            time.sleep(0.2)
            self.signal(rank, signal.SIGKILL)
        ended = [RankEnded(os.waitpid(pid, 0)[1], "") for pid in self._pids.values()]
        reports = [os.read(reader, REPORT_BYTES_MAX).decode() for reader in self._reports]
        for reader in self._reports:
            os.close(reader)
        self._meeting.cleanup()
        if late:
            raise HungError(f"ranks {late} of {len(ended)} after {seconds:g} s: {reports}")
        return [RankEnded(one.status, report) for one, report in zip(ended, reports, strict=True)]

    def _ends_by(self, rank: int, deadline: float) -> bool:
        descriptor = os.pidfd_open(self._pids[rank])
        try:
            left = max(0.0, deadline - time.monotonic())
            return bool(select.select([descriptor], [], [], left)[0])
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def own_directory(parent: Path | None) -> Iterator[Path]:
    """One that goes at the end."""
    with tempfile.TemporaryDirectory(prefix="ranks-", dir=parent) as place:
        yield Path(place)
