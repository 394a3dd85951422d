"""DeepFreeze in Hugging Face's Trainer: docs/frameworks/huggingface.md."""

from deepfreeze.trainers.huggingface import DeepFreezeTrainerMixin

__all__ = ["DeepFreezeTrainerMixin"]

DeepFreezeTrainerMixin.__module__ = __name__
