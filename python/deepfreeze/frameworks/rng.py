"""The random number generators of a program, as one entry of its state."""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from deepfreeze.errors import MismatchError

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

_RANDOM_STATE = "numpy.RandomState"


class RNG:
    """The global generators of Python, NumPy and torch (CPU, and CUDA if it is used).

    Generators of the program's own are given as arguments: torch.Generator,
    numpy.random.Generator, numpy.random.RandomState or random.Random, by position or by name. NumPy
    and torch are included once they are imported, and Keras's global seed generator once something
    has drawn from it.

    The state is taken after that of all other objects, and restored after all of them, so a
    state_dict() or load_state_dict() that draws shifts no stream. A DataLoader without a
    `generator` of its own draws its base seed from torch's global generator whenever an iteration
    begins, also when it is resumed: for a bit-identical run give it one.
    """

    def __init__(self, *generators: object, **named: object) -> None:
        own: dict[str, object] = {str(index): each for index, each in enumerate(generators)}
        own.update(named)
        for name, generator in own.items():
            if kind_of(generator) is None:
                raise TypeError(f"RNG: {name} is a {type(generator).__qualname__}, no generator")
        self._own = own

    def __repr__(self) -> str:
        own = ", ".join(f"{name}={kind_of(generator)}" for name, generator in self._own.items())
        return f"RNG({own})"

    @property
    def generators(self) -> list[object]:
        """The program's own generators."""
        return list(self._own.values())

    def state_dict(self) -> dict[str, Any]:
        """The state of all generators."""
        state: dict[str, Any] = {"python": _python_state(random.getstate())}
        if "numpy" in sys.modules:
            import numpy as np

            state["numpy"] = np.random.get_state(legacy=False)
        if "torch" in sys.modules:
            import torch

            state["torch"] = torch.get_rng_state()
            if torch.cuda.is_available() and torch.cuda.is_initialized():
                state["cuda"] = torch.cuda.get_rng_state_all()
        seed = _keras_seed()
        if seed is not None:
            state["keras"] = seed
        state["own"] = {name: state_of(generator) for name, generator in self._own.items()}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Sets all generators.

        MismatchError, with none set, if the stored generators are others.
        """
        self._check_own(state["own"])
        if "cuda" in state:
            _set_cuda(state["cuda"])
        _set_keras_seed(state.get("keras"))  # before Python's, from which a new one draws
        random.setstate(_python_tuple(state["python"]))
        if "numpy" in state:
            import numpy as np

            np.random.set_state(state["numpy"])
        if "torch" in state:
            import torch

            torch.set_rng_state(state["torch"])
        for name, generator in self._own.items():
            set_state(generator, state["own"][name])

    def _check_own(self, stored: dict[str, Any]) -> None:
        here = {name: kind_of(generator) for name, generator in self._own.items()}
        there = {name: own["kind"] for name, own in stored.items()}
        if here != there:
            raise MismatchError(f"RNG: stored generators {there}, live {here}")


def _python_state(state: tuple[Any, ...]) -> dict[str, Any]:
    version, words, gauss_next = state
    data = struct.pack(f"<{len(words)}I", *words)
    return {"version": version, "words": data, "gauss_next": gauss_next}


def _python_tuple(state: dict[str, Any]) -> tuple[Any, ...]:
    data = state["words"]
    words = struct.unpack(f"<{len(data) // 4}I", data)
    return state["version"], words, state["gauss_next"]


def _keras_seed() -> NDArray[Any] | None:
    if "keras" not in sys.modules:
        return None
    from deepfreeze.frameworks.keras.variables import global_seed

    return global_seed()


def _set_keras_seed(seed: NDArray[Any] | None) -> None:
    if "keras" not in sys.modules:
        return
    from deepfreeze.frameworks.keras.variables import set_global_seed

    set_global_seed(seed)


def _set_cuda(states: list[torch.Tensor]) -> None:
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count != len(states):
        raise MismatchError(f"RNG: stored for {len(states)} CUDA devices, {count} are here")
    torch.cuda.set_rng_state_all(states)


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
        return {"kind": kind, "state": _python_state(generator.getstate())}
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
        generator.setstate(_python_tuple(state))
    elif kind == "torch.Generator" or kind.startswith(_RANDOM_STATE):
        generator.set_state(state)
    else:
        _set_numpy(generator.bit_generator, stored)
