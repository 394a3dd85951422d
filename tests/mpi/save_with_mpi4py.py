"""A job's rank: exchanges, saves and restores over mpi4py. Prints one word, from rank 0."""

import sys
import time

import numpy as np
from mpi4py import MPI

import deepfreeze as df


def exchange(ranks: df.MPIRanks) -> None:
    given = [bytes([rank]) * (rank * 1_000_000) for rank in range(ranks.world_size)]
    gathered = ranks.gather(given[ranks.rank])
    assert gathered == (given if ranks.rank == 0 else None)
    assert ranks.scatter(given if ranks.rank == 0 else []) == given[ranks.rank]


def be_late(ranks: df.MPIRanks) -> None:
    """The others begin to send more than MPI takes at once, and then make no call of it."""
    ranks.timeout_seconds = 0.2
    if ranks.rank == 0:
        time.sleep(0.5)
    began = time.monotonic()
    try:
        ranks.gather(b"x" * 10_000_000)
    except TimeoutError:
        seconds = time.monotonic() - began
        time.sleep(3.0 if ranks.rank else 0.0)
        assert seconds < 2.5, seconds  # a deadline: inside MPI it would be the others' sleep
        return
    raise AssertionError("nobody came in time, and nobody was missed")


def refuse_no_group() -> None:
    try:
        df.MPIRanks(MPI.COMM_NULL)  # type: ignore[arg-type]
    except ValueError:
        return
    raise AssertionError("a communicator that is none was taken")


def main(run: str) -> None:
    refuse_no_group()
    ranks = df.MPIRanks(timeout_seconds=60)
    exchange(ranks)
    w, own = np.zeros(2_000_000), df.per_rank(np.zeros(2, dtype=np.int64))
    state = {"w": np.arange(2_000_000.0), "own": df.per_rank(np.full(2, ranks.rank))}
    with df.Checkpointer(run, ranks=ranks) as ckpt:
        handle = ckpt.save(1, state)
        assert handle is not None
        handle.wait("durable")
        ckpt.restore({"w": w, "own": own})
    assert np.array_equal(w, np.arange(2_000_000.0))
    assert (own.value == ranks.rank).all()
    be_late(df.MPIRanks())
    print("good", flush=True)
    time.sleep(5.0)  # until all have said so
    MPI.COMM_WORLD.Abort(0)  # MPI can't cancel calls that were begun


if __name__ == "__main__":
    main(sys.argv[1])
