"""DeepFreeze in programs that use Hugging Face Accelerate: docs/frameworks/accelerate.md."""

from deepfreeze.trainers.accelerate import AcceleratorCheckpointer

__all__ = ["AcceleratorCheckpointer"]

AcceleratorCheckpointer.__module__ = __name__
