"""Single random number generators: of Python, NumPy and torch."""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

_RANDOM_STATE = "numpy.RandomState"


def python_state(state: tuple[Any, ...]) -> dict[str, Any]:
    version, words, gauss_next = state
    data = struct.pack(f"<{len(words)}I", *words)
    return {"version": version, "words": data, "gauss_next": gauss_next}


def python_tuple(state: dict[str, Any]) -> tuple[Any, ...]:
    data = state["words"]
    words = struct.unpack(f"<{len(data) // 4}I", data)
    return state["version"], words, state["gauss_next"]


def kind_of(generator: object) -> str | None:
    """The kind of a generator; None for any other object."""
    if isinstance(generator, random.Random):
        return "random.Random"
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(generator, torch.Generator):
        return "torch.Generator"
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(generator, numpy.random.Generator):
        return f"numpy.{type(generator.bit_generator).__name__}"
    if numpy is not None and isinstance(generator, numpy.random.RandomState):
        return f"{_RANDOM_STATE}.{type(generator._bit_generator).__name__}"
    return None


def state_of(generator: Any) -> dict[str, Any]:
    """The generator's state, for set_state() of another generator of this kind."""
    kind = kind_of(generator)
    if kind == "random.Random":
        return {"kind": kind, "state": python_state(generator.getstate())}
    if kind == "torch.Generator":
        return {"kind": kind, "state": generator.get_state()}
    if str(kind).startswith(_RANDOM_STATE):
        return {"kind": kind, "state": generator.get_state(legacy=False)}
    numpy_generator: np.random.Generator = generator
    bits = numpy_generator.bit_generator
    return {"kind": kind, "state": bits.state, "seed": _seed_of(bits)}


def _seed_of(bits: Any) -> dict[str, Any] | None:
    """The seed that spawn() uses; None if it is of another kind, or NumPy is too old."""
    import numpy as np

    seed = getattr(bits, "seed_seq", None)
    if not isinstance(seed, np.random.SeedSequence):
        return None
    entropy = seed.entropy
    return {
        "entropy": [int(word) for word in entropy] if isinstance(entropy, Iterable) else entropy,
        "spawn_key": tuple(int(key) for key in seed.spawn_key),
        "pool_size": int(seed.pool_size),
        "n_children_spawned": int(seed.n_children_spawned),
    }


def _set_numpy(bits: Any, stored: dict[str, Any]) -> None:
    seed = stored.get("seed")
    if seed is None:
        bits.state = stored["state"]
        return
    import numpy as np

    bits.__setstate__((stored["state"], np.random.SeedSequence(**seed)))


def set_state(generator: Any, stored: dict[str, Any]) -> None:
    """Sets a generator to a stored state."""
    kind, state = stored["kind"], stored["state"]
    if kind == "random.Random":
        generator.setstate(python_tuple(state))
    elif kind == "torch.Generator" or kind.startswith(_RANDOM_STATE):
        generator.set_state(state)
    else:
        _set_numpy(generator.bit_generator, stored)
