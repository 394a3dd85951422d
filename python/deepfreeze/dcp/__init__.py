"""DeepFreeze under torch.distributed.checkpoint (DCP).

StorageWriter and StorageReader keep what dcp.save() and dcp.load() are given as steps of a run.
"""

from deepfreeze.dcp.reader import StorageReader
from deepfreeze.dcp.writer import StorageWriter

__all__ = ["StorageReader", "StorageWriter"]
