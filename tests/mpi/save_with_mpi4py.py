"""A job's rank: exchanges, saves and restores over mpi4py. Prints one word, from rank 0."""

import sys

import numpy as np
from mpi4py import MPI

import deepfreeze as df


def exchange(ranks: df.MPIRanks) -> None:
    given = [bytes([rank]) * (rank * 1_000_000) for rank in range(ranks.world_size)]
    gathered = ranks.gather(given[ranks.rank])
    assert gathered == (given if ranks.rank == 0 else None)
    assert ranks.scatter(given if ranks.rank == 0 else []) == given[ranks.rank]


def be_late(ranks: df.MPIRanks) -> None:
    """Only rank 0 waits."""
    if ranks.rank == 0:
        ranks.timeout_seconds = 0.2
        try:
            ranks.gather(b"")
        except TimeoutError:
            return
        raise AssertionError("nobody came, and nobody was missed")


def main(run: str) -> None:
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
    MPI.COMM_WORLD.Barrier()
    if ranks.rank == 0:
        print("good", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
