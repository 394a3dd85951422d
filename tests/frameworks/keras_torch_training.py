"""Keras 3 on torch."""

import os

os.environ["KERAS_BACKEND"] = "torch"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from .keras_training import Own

__all__ = ["Own"]
