"""The other processes of the job, and how they talk to each other around a save or restore.

A checkpointer needs a `_core.Ranks`: a rank, a world size, gather and scatter of bytes. All ranks
call them together, each in the thread that calls its checkpointer.
"""

from deepfreeze.ranks.directory_ranks import DirectoryRanks
from deepfreeze.ranks.mpi_ranks import MPIRanks

__all__ = [
    "DirectoryRanks",
    "MPIRanks",
]
