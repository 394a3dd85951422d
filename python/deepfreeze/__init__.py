"""DeepFreeze: frequent, asynchronous, verified checkpoints for deep-learning training."""

from deepfreeze import _core
from deepfreeze.checkpointer import Checkpointer
from deepfreeze.determinism import Determinism, determinism
from deepfreeze.errors import (
    CheckpointError,
    CheckpointTimeoutError,
    CorruptError,
    EncodeError,
    FencedError,
    IncompleteError,
    MismatchError,
    NoSpaceError,
    TornCaptureError,
    make_error,
)
from deepfreeze.handle import SaveHandle, SaveStatus
from deepfreeze.per_rank import PerRank, per_rank
from deepfreeze.policy import every, keep
from deepfreeze.ranks import DirectoryRanks, MPIRanks, TorchRanks
from deepfreeze.reading import RestoreReport
from deepfreeze.registry import register_type
from deepfreeze.rng import RNG
from deepfreeze.signals import finish_on_sigterm

__all__ = [
    "RNG",
    "CheckpointError",
    "CheckpointTimeoutError",
    "Checkpointer",
    "CorruptError",
    "Determinism",
    "DirectoryRanks",
    "EncodeError",
    "FencedError",
    "IncompleteError",
    "MPIRanks",
    "MismatchError",
    "NoSpaceError",
    "PerRank",
    "RestoreReport",
    "SaveHandle",
    "SaveStatus",
    "TorchRanks",
    "TornCaptureError",
    "determinism",
    "every",
    "finish_on_sigterm",
    "keep",
    "per_rank",
    "register_type",
]

_core.set_error_factory(make_error)
