"""Helpers for the tests of JAX, Flax and Equinox."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

import deepfreeze as df
from deepfreeze import _core

LARGE = (160, 128)  # 80 KiB of float32


def same(one: Any, other: Any) -> bool:
    """Whether structure, dtypes and bits are equal."""
    leaves, others = jax.tree.leaves(one), jax.tree.leaves(other)
    alike = jax.tree.structure(one) == jax.tree.structure(other)
    return alike and all(map(same_array, leaves, others))


def same_array(one: Any, other: Any) -> bool:
    """Whether dtype and bits are equal."""
    if jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
        one, other = jax.random.key_data(one), jax.random.key_data(other)
    one, other = np.asarray(one), np.asarray(other)
    return bool(one.dtype == other.dtype and one.tobytes() == other.tobytes())


def stored_keys(ckpt: df.Checkpointer) -> list[str]:
    """The keys of the newest checkpoint, in order."""
    return sorted(each.key for each in _core.open_checkpoint(ckpt.checkpoints()[0]).tensors())
