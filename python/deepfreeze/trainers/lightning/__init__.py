"""DeepFreeze in PyTorch Lightning's Trainer: docs/frameworks/lightning.md.

DeepFreezeCallback saves the state of a fit while it runs, and resumes it;
DeepFreezeCheckpointIO keeps the checkpoints that Lightning itself makes (ModelCheckpoint,
Trainer.save_checkpoint) in a run.
"""

from deepfreeze.trainers.lightning.callback import DeepFreezeCallback
from deepfreeze.trainers.lightning.checkpoint_io import DeepFreezeCheckpointIO

__all__ = ["DeepFreezeCallback", "DeepFreezeCheckpointIO"]
