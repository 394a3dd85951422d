"""DeepFreeze as torchtitan's checkpoint manager: docs/frameworks/torchtitan.md."""

from deepfreeze.trainers.torchtitan import DeepFreezeCheckpointManager

__all__ = ["DeepFreezeCheckpointManager"]

DeepFreezeCheckpointManager.__module__ = __name__
