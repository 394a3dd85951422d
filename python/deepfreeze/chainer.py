"""DeepFreeze in Chainer's Trainer: docs/frameworks/chainer.md."""

from deepfreeze.trainers.chainer import DeepFreezeExtension

__all__ = ["DeepFreezeExtension"]

DeepFreezeExtension.__module__ = __name__
