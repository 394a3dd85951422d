"""Variables of Keras 3: finds those of an object, reads their values and sets them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from deepfreeze.base.names import shown
from deepfreeze.errors import EncodeError
from deepfreeze.state.contracts import Form

if TYPE_CHECKING:
    from numpy.typing import NDArray


_MAY_LACK = ("optimizers", "states")  # groups that are empty in most objects
_ADDED_NUMBERS = re.compile(r"_\d+(?=_|/|$)")  # "dense_3/kernel" is "dense/kernel" elsewhere


@dataclass(frozen=True)
class TakenModel:
    """A model with values of its variables that were taken earlier; part of a state to save."""

    model: Any
    values: Mapping[int, Any]  # by the variable's id()


def groups_of(value: Any) -> dict[str, list[Any]]:
    """The variables of a model or layer by group, each in Keras's own order.

    `variables` of a model are its weights and the states of its seed generators.
    """
    if isinstance(value, keras.random.SeedGenerator):
        return {"variables": [value.state]}
    groups = {"variables": list(value.variables)}
    if isinstance(value, keras.Model):
        own = getattr(value, "optimizer", None)
        if own is not None:
            groups["optimizer"] = list(own.variables)
        others = [each for each in optimizers_of(value) if each is not own]
        groups["optimizers"] = [variable for each in others for variable in each.variables]
        groups["metrics"] = list(value.metrics_variables)
    groups["states"] = [state for layer in layers_of(value) for state in _states_of(layer)]
    return {name: found for name, found in groups.items() if found or name not in _MAY_LACK}


def layers_of(value: Any) -> list[Any]:
    """A layer or model and all layers in it; nothing for any other object."""
    return list(value._flatten_layers()) if isinstance(value, keras.layers.Layer) else []


def optimizers_of(model: Any) -> list[Any]:
    """Every optimizer that a model or one within it keeps, each once."""
    found = attributes_of(layers_of(model), (keras.optimizers.Optimizer,))
    return list({id(each): each for _, each in found}.values())


def attributes_of(layers: Iterable[Any], kinds: tuple[type, ...]) -> Iterator[tuple[str, Any]]:
    """Attributes of layers that are of one of `kinds`, by the layer's place and the name.

    Includes those in lists, tuples and dicts that are attributes.
    """
    book_keeping = _names_of_any_layer()
    is_wanted, is_container = _Subclass(kinds), _Subclass((dict, list, tuple))
    for index, layer in enumerate(layers):
        for name, value in vars(layer).items():
            kind = value.__class__  # TensorFlow has proxies of tuples, whose type() is no tuple
            if not (is_wanted[kind] or is_container[kind]):
                continue
            if name in book_keeping or name.startswith("_self_"):
                continue
            if is_wanted[kind]:
                yield f"{index}.{name}", value
                continue
            inner = value.items() if isinstance(value, dict) else enumerate(value)
            yield from (
                (f"{index}.{name}.{key}", each) for key, each in inner if is_wanted[each.__class__]
            )


class _Subclass(dict[type, bool]):
    """Whether a type is a subclass of `kinds`; remembers it, as a save asks thousands of times."""

    def __init__(self, kinds: tuple[type, ...]) -> None:
        super().__init__()
        self._kinds = kinds

    def __missing__(self, kind: type) -> bool:
        found = self[kind] = issubclass(kind, self._kinds)
        return found


@cache
def _names_of_any_layer() -> frozenset[str]:
    """Keras's lists of variables and layers, TensorFlow's and torch's dicts of the same."""
    return frozenset(vars(keras.layers.Layer()))


def _states_of(layer: Any) -> list[Any]:
    """The variables from which a stateful recurrent layer continues: not among its variables."""
    if not isinstance(layer, keras.layers.RNN) or not layer.stateful:
        return []
    return [each for each in keras.tree.flatten(layer.states) if isinstance(each, keras.Variable)]


def has_metrics_to_come(value: Any) -> bool:
    """Whether a model makes metrics in its first batch only. They begin anew with each epoch."""
    parts = (getattr(value, "_compile_metrics", None), getattr(value, "_compile_loss", None))
    return any(part is not None and not part.built for part in parts)


def name_of(variable: Any, index: int) -> str:
    """The place in its list, and the part of its path that all instances and processes share."""
    return f"{index}.{_lasting(variable.path)}"


@lru_cache(65536)
def _lasting(path: str) -> str:
    return _ADDED_NUMBERS.sub("", path)


def sync(value: Any) -> None:
    """On the jax backend gives a model's variables back the values that fit() has taken away."""
    if isinstance(value, keras.Model) and keras.backend.backend() == "jax":
        value.jax_state_sync()


def value_of(variable: Any, path: str) -> Any:
    """The backend's own variable or tensor; on jax a view of its array, which holds the memory.

    Not `variable.value`: that is a cast copy under mixed precision.
    """
    value = variable._value
    if value is None:
        raise EncodeError(
            f"{shown(path)}: {variable.path} has no value now: within fit() of the jax backend the "
            "model itself must come first in the state, else build the model first"
        )
    return np.asarray(value) if keras.backend.backend() == "jax" else value


def has_replicas(variable: Any) -> bool:
    """Whether a strategy of tf.distribute keeps the variable on several devices."""
    if keras.backend.backend() != "tensorflow":
        return False
    from deepfreeze.frameworks.tensorflow.replicas import is_distributed

    return is_distributed(variable._value)


def live_form(variable: Any) -> Form:
    """Its own dtype, even while it is cast, and its shape."""
    return str(variable._dtype), tuple(variable.shape)


def assign(variable: Any, array: NDArray[Any]) -> None:
    """Sets a variable to a copy of `array`."""
    if keras.backend.backend() == "tensorflow":
        variable._value.assign(array)
    elif keras.backend.backend() == "jax":
        from deepfreeze.frameworks.jax.arrays import copied

        variable.assign(copied(array))
    else:
        variable.assign(array)


def build_optimizer(value: Any, count: int) -> None:
    """Has a compiled model's optimizer make its slots, if more variables are stored than it has.

    Otherwise it would make them in its first step.
    """
    optimizer = getattr(value, "optimizer", None) if isinstance(value, keras.Model) else None
    if optimizer is not None and not optimizer.built and count > len(optimizer.variables):
        with keras.name_scope(optimizer.name, caller=optimizer):  # as apply() does
            optimizer.build(value.trainable_variables)


def same_name(stored: str, live: str, group: str) -> bool:
    """Whether names mean one variable. An optimizer's scopes only name its builder: ignored."""
    if group != "optimizer":
        return stored == live
    (place, _, path), (live_place, _, live_path) = stored.partition("."), live.partition(".")
    return place == live_place and path.rpartition("/")[2] == live_path.rpartition("/")[2]


def finalizers_of(value: Any) -> dict[int, Callable[[], object]]:
    """Functions that derive a layer's other values from a variable, by the variable's id()."""
    return {
        id(variable): layer.finalize_state
        for layer in layers_of(value)
        if isinstance(layer, keras.layers.Normalization)
        for variable in layer.variables
    }


def global_seed() -> NDArray[Any] | None:
    """The global seed generator's state, for calls of keras.random; None if nothing has drawn."""
    if not hasattr(keras, "Variable"):  # Keras 2 has no such thing
        return None
    from keras.src.backend.common.global_state import get_global_attribute

    generator = get_global_attribute("global_seed_generator")
    return None if generator is None else np.array(keras.ops.convert_to_numpy(generator.state))


def set_global_seed(state: NDArray[Any] | None) -> None:
    """Sets that generator, and makes it if it is missing. None: nothing has drawn from it yet."""
    if state is None:
        from keras.src.backend.common.global_state import set_global_attribute

        set_global_attribute("global_seed_generator", None)
        return
    from keras.src.random.seed_generator import global_seed_generator

    assign(global_seed_generator().state, state)
