"""JAX's typed random keys: their words are stored as an array, with the generator's name."""

from __future__ import annotations

from typing import Any

import jax  # type: ignore[import-not-found, unused-ignore]

from deepfreeze.base.names import join
from deepfreeze.frameworks.held import HeldArrays
from deepfreeze.frameworks.jax.arrays import ANYWHERE, check_readable, encode_array, remade
from deepfreeze.state.contracts import Filler, Remake, Sink, Source
from deepfreeze.state.tree import Node, tag_of

KIND = "prng_key"


def is_key(array: Any) -> bool:
    """Whether a jax.Array holds typed keys. Keys of uint32 are arrays like any other."""
    return bool(jax.numpy.issubdtype(array.dtype, jax.dtypes.prng_key))


def encode_key(key: Any, path: str, capture: Sink, arrays: HeldArrays) -> Node:
    """The node of an array of keys."""
    check_readable(key, path)
    data = encode_array(jax.random.key_data(key), join(path, "data"), capture, arrays)
    return {"$": "object", "t": KIND, "v": {"impl": _generator_of(key), "data": data}}


def match_key(node: Node, live: Any, path: str, plan: Filler) -> Remake:
    """Plans new keys of the stored words, for the same generator."""
    if tag_of(node) != "object" or node["t"] != KIND:
        plan.mismatch(path, node, f"keys of {_generator_of(live)}")
        return None
    impl, data = node["v"]["impl"], node["v"]["data"]
    if impl != _generator_of(live):
        plan.unfit(path, f"stored keys of {impl}, live of {_generator_of(live)}")
        return None
    words = jax.eval_shape(jax.random.key_data, live)
    live_form = words.dtype.name, tuple(words.shape)
    if not plan.same_form(path, plan.form_of(data["k"]), live_form):
        return None
    make, generator = remade(data, ANYWHERE, path, plan), jax.random.key_impl(live)
    home = live.sharding if live.committed else None  # deleted keys have these, too

    def keys() -> Any:
        made = jax.random.wrap_key_data(make(), impl=generator)
        return made if home is None else jax.device_put(made, home)

    return keys


def decode_key(node: Node, path: str, plan: Source) -> Any:
    """The keys of a node whose data has been read."""
    words = plan.decoder.decode(node["v"]["data"], path)
    return jax.random.wrap_key_data(jax.numpy.array(words), impl=node["v"]["impl"])


def _generator_of(key: Any) -> str:
    return str(jax.random.key_impl(key))
