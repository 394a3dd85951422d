"""Keras 3 on jax."""

import os

os.environ["KERAS_BACKEND"] = "jax"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from .keras_training import Own

__all__ = ["Own"]
