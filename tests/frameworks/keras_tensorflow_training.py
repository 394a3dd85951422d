"""Keras 3 on tensorflow."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from .keras_training import Own

__all__ = ["Own"]
