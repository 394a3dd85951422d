"""Variables of the backend's own that layers of a Keras model keep beside Keras's variables."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import keras

from deepfreeze.frameworks.keras.variables import attributes_of

log = logging.getLogger("deepfreeze")


def untracked_of(layers: Iterable[Any], known: Iterable[Any]) -> dict[str, Any]:
    """The changing values that are in none of Keras's lists, by the layer's place and attribute.

    They are TensorFlow's variables and generators, and torch's parameters and buffers, for example
    of a wrapped module. `known`: the variables that are in the lists.
    """
    seen = {id(each._value) for each in known}
    find = {"tensorflow": _of_tensorflow, "torch": _of_torch}.get(keras.backend.backend())
    found: dict[str, Any] = {}
    for name, value in find(layers) if find else ():
        if id(value) not in seen:
            seen.add(id(value))
            found[name] = value
    return found


def _of_tensorflow(layers: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    from deepfreeze.frameworks.tensorflow.objects import VARIABLES_AND_GENERATORS, variable_of

    for name, each in attributes_of(layers, VARIABLES_AND_GENERATORS):
        variable = variable_of(each)
        yield (name if variable is each else f"{name}.state"), variable


def _of_torch(layers: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    for index, layer in enumerate(layers):
        yield from layer.named_parameters(f"{index}", recurse=False)
        yield from layer.named_buffers(f"{index}", recurse=False)
        for name, module in layer.named_children():
            if not isinstance(module, keras.layers.Layer):
                yield from module.named_parameters(f"{index}.{name}")
                yield from module.named_buffers(f"{index}.{name}")


def warn_of_vocabularies(layers: Iterable[Any]) -> None:
    """Warns that the result of adapt() is in no variable, except for Normalization."""
    for layer in layers:
        if hasattr(layer, "adapt") and not isinstance(layer, keras.layers.Normalization):
            _warn_once(type(layer).__name__)


@cache
def _warn_once(kind: str) -> None:
    log.warning("the result of adapt() in a layer %s is not stored: call adapt() again first", kind)
