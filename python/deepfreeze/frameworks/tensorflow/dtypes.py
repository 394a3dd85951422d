"""Names of those TensorFlow dtypes whose values can be stored."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf

from deepfreeze.base.names import shown
from deepfreeze.errors import EncodeError
from deepfreeze.frameworks.held import storable_name


def dtype_name(dtype: Any, path: str) -> str:
    """The name to store; EncodeError for a dtype whose values are no numbers."""
    name = _name_of(dtype)
    if name is None:
        raise EncodeError(f"{shown(path)}: values of {dtype.name} can't be stored")
    return name


def is_storable(dtype: Any) -> bool:
    """Whether its values are numbers."""
    return _name_of(dtype) is not None


@cache
def _name_of(dtype: Any) -> str | None:
    handles = dtype in (tf.string, tf.resource, tf.variant)
    return None if handles else storable_name(np.dtype(dtype.as_numpy_dtype))
