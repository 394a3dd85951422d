"""DeepFreeze in PyTorch Lightning's Trainer: docs/frameworks/lightning.md."""

from deepfreeze.trainers.lightning import DeepFreezeCallback, DeepFreezeCheckpointIO

__all__ = ["DeepFreezeCallback", "DeepFreezeCheckpointIO"]

DeepFreezeCallback.__module__ = __name__
DeepFreezeCheckpointIO.__module__ = __name__
