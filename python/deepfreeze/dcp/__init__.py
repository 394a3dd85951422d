"""DeepFreeze under torch.distributed.checkpoint (DCP): docs/dcp.md.

StorageWriter and StorageReader keep each dcp.save() as a step of a run, and dcp.load() reads such a
step. AsyncStager copies states for dcp.async_save(). With checkpoint ids that begin with
deepfreeze:// nothing else need change: DCP's own streams are kept, versioned and committed.
"""

from fsspec import register_implementation

from deepfreeze.dcp.filesystem import DeepFreezeFileSystem
from deepfreeze.dcp.reader import StorageReader
from deepfreeze.dcp.stager import AsyncStager
from deepfreeze.dcp.writer import StorageWriter

__all__ = ["AsyncStager", "DeepFreezeFileSystem", "StorageReader", "StorageWriter"]

register_implementation("deepfreeze", DeepFreezeFileSystem, clobber=True)
