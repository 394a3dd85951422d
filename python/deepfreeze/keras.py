"""DeepFreeze in the fit() of Keras 3: docs/frameworks/keras.md."""

from deepfreeze.trainers.keras.callback import DeepFreezeCallback

__all__ = ["DeepFreezeCallback"]

DeepFreezeCallback.__module__ = __name__
