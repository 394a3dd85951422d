"""The random number generators of a program, as one entry of its state."""

from __future__ import annotations

import random
import sys
from typing import Any

from deepfreeze.errors import MismatchError
from deepfreeze.frameworks.generators import (
    kind_of,
    python_state,
    python_tuple,
    set_state,
    state_of,
)


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
        state: dict[str, Any] = {"python": python_state(random.getstate())}
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            state["numpy"] = numpy.random.get_state(legacy=False)
        if sys.modules.get("torch") is not None:
            from deepfreeze.frameworks.torch.adapter import generator_states

            state.update(generator_states())
        if sys.modules.get("keras") is not None:
            from deepfreeze.frameworks.keras.variables import global_seed

            seed = global_seed()
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
            from deepfreeze.frameworks.torch.adapter import set_cuda_generators

            set_cuda_generators(state["cuda"])
        if sys.modules.get("keras") is not None:  # before Python's, from which a new one draws
            from deepfreeze.frameworks.keras.variables import set_global_seed

            set_global_seed(state.get("keras"))
        random.setstate(python_tuple(state["python"]))
        if "numpy" in state:
            import numpy as np

            np.random.set_state(state["numpy"])
        if "torch" in state:
            from deepfreeze.frameworks.torch.adapter import set_cpu_generator

            set_cpu_generator(state["torch"])
        for name, generator in self._own.items():
            set_state(generator, state["own"][name])

    def _check_own(self, stored: dict[str, Any]) -> None:
        here = {name: kind_of(generator) for name, generator in self._own.items()}
        there = {name: own["kind"] for name, own in stored.items()}
        if here != there:
            raise MismatchError(f"RNG: stored generators {there}, live {here}")
