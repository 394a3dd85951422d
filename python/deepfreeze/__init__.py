"""DeepFreeze: frequent, asynchronous, verified checkpoints for deep-learning training."""

import sys as _sys

from deepfreeze import _core
from deepfreeze.checkpointer import Checkpointer
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
)
from deepfreeze.errors import (
    make_error as _make_error,
)
from deepfreeze.forking import fork
from deepfreeze.frameworks.in_use.determinism import Determinism, determinism
from deepfreeze.frameworks.in_use.rng import RNG
from deepfreeze.frameworks.torch.ranks import TorchRanks
from deepfreeze.interval.parity import parity, partner
from deepfreeze.interval.policy import every, keep
from deepfreeze.interval.tier import tier
from deepfreeze.loading import checkpoints, load_into
from deepfreeze.ranks import DirectoryRanks, MPIRanks
from deepfreeze.restoring.restorer import RestoreReport
from deepfreeze.saving.handle import SaveHandle, SaveStatus
from deepfreeze.signals import finish_on_sigterm
from deepfreeze.state.per_rank import PerRank, per_rank
from deepfreeze.state.registry import register_type
from deepfreeze.tagging import tag

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
    "checkpoints",
    "determinism",
    "every",
    "finish_on_sigterm",
    "fork",
    "keep",
    "load_into",
    "parity",
    "partner",
    "per_rank",
    "register_type",
    "tag",
    "tier",
]

_core.set_error_factory(_make_error)

# Public modules that a program imports by itself; all others are internal.
_MODULES = (
    "accelerate", "chainer", "chainer_compat", "dcp", "huggingface", "keras", "lightning",
    "torchtitan", "tracking",
)  # fmt: skip


def __dir__() -> list[str]:
    """The public names, and of the public modules those that were imported."""
    imported = [name for name in _MODULES if f"{__name__}.{name}" in _sys.modules]
    return sorted([*__all__, *imported])
