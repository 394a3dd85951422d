"""A rank of ChainerMN over MPI, and the ways in which its ranks save."""

import importlib
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import deepfreeze as df
from lab.networks.chainer_workloads import WORKLOADS, ChainerTraining, ChainerWorkload
from lab.programs.scale_rank import be_rank, share_of
from lab.writers.loop import KEEP_LAST, Attached, Saver, SaveRecord
from lab.writers.loop_frameworks import Snapshot, ThreadSnapshot
from lab.writers.loop_peers import Peer
from lab.writers.loop_ranks import ByRankZero, EachAlone, Ranked, Together
from lab.writers.saver import Pending

chainermn: Any = importlib.import_module("chainermn")


@cache
def communicator() -> Any:
    """The one that ChainerMN has for CPUs."""
    return chainermn.create_communicator("naive")


@cache
def mpi_ranks() -> df.MPIRanks:
    """Made once: it lasts as long as MPI."""
    return df.MPIRanks()


class MpiJob:
    """The ranks that mpirun has started."""

    def __init__(self) -> None:
        self.rank = int(communicator().rank)

    def gathered(self, value: Any) -> list[Any]:
        found: list[Any] = communicator().mpi_comm.allgather(value)
        return found


def data_parallel(workload: ChainerWorkload, scaling: str) -> ChainerWorkload:
    """A network of which every rank trains a replica."""
    comm = communicator()

    def make(seed: int) -> ChainerTraining:
        training = workload.make(seed)
        training.updates = chainermn.create_multi_node_optimizer(training.optimizer, comm)
        training.batches = share_of(training.batches, scaling, comm.rank, comm.size)
        return training

    return replace(workload, make=make)


class OfMpi(Ranked):
    """The rank is that of ChainerMN's communicator."""

    def rank(self) -> int:
        return int(communicator().rank)


class RankZero(OfMpi, ByRankZero, Snapshot):
    name = "snapshot"
    title = "snapshot by rank 0, not compressed"


class RankZeroThread(OfMpi, ByRankZero, ThreadSnapshot):
    name = "snapshot-thread"
    title = "snapshot by rank 0, ThreadWriter, not compressed; mixes steps"


class MultiNodeCheckpointer(OfMpi, EachAlone, Peer):
    """chainermn's own, deprecated: each rank writes all it has, deflated."""

    name = "multi-node-checkpointer"
    title = "create_multi_node_checkpointer: all ranks, compressed"
    synced = "nothing"

    def __init__(self, training: Any, directory: Path, every: int) -> None:
        super().__init__(training, directory, every)
        make = chainermn.create_multi_node_checkpointer
        self.checkpointer = make("run", communicator(), KEEP_LAST, 1, str(self.directory))

    def make_writer(self) -> None:
        """It is made of the communicator."""

    def start(self, record: SaveRecord) -> tuple[Path, Pending]:
        self.checkpointer.save(self.training, record.step)
        return self.directory / f"run.{communicator().rank}.{record.step}", Pending()


class AttachedTogether(OfMpi, Together, Attached):
    title = "DeepFreeze, by all ranks, over MPI"

    def open(self) -> df.Checkpointer:
        return df.Checkpointer(self.directory, keep=df.keep(last=KEEP_LAST), ranks=mpi_ranks())


SAVERS: dict[str, type[Saver]] = {
    "rank0": RankZero,
    "all-write": MultiNodeCheckpointer,
    "asynchronous": RankZeroThread,
    "deepfreeze": AttachedTogether,
}


def main(arguments: dict[str, Any]) -> None:
    workload = data_parallel(WORKLOADS[arguments["workload"]], arguments["scaling"])
    be_rank(arguments, MpiJob(), workload, SAVERS)
