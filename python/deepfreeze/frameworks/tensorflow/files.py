"""Reads checkpoints of tf.train.Checkpoint."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

ERRORS = (tf.errors.OpError, ValueError)  # of a checkpoint that can't be read


class Reader:
    """The variables of one checkpoint, by name."""

    def __init__(self, prefix: str) -> None:
        self._reader = tf.train.load_checkpoint(prefix)
        self.names = self._reader.get_variable_to_shape_map().keys()

    def read(self, name: str) -> Any:
        """A variable's value as an array. TensorFlow compares checksums."""
        return self._reader.get_tensor(name)

    def unstorable_dtype(self, name: str) -> str | None:
        """The name of its dtype, if that is none of numbers."""
        dtype = self._reader.get_variable_to_dtype_map()[name]
        numbers = dtype.is_floating or dtype.is_integer or dtype.is_bool or dtype.is_complex
        return None if numbers else str(dtype.name)
