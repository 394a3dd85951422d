"""TensorFlow: variables, tensors, generators, iterators, and the objects that hold them.

A variable's buffer is taken by reference. While somebody refers to it, TensorFlow makes a new one
for the next update instead of writing it. So the values that save() took stay unchanged, whoever
writes the variable. References are taken in the thread that calls save(), between two steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.ops import EagerTensor
from tensorflow.python.ops.resource_variable_ops import ResourceVariable
from tensorflow.python.trackable.base import Trackable

from deepfreeze.base.names import join, shown
from deepfreeze.errors import EncodeError
from deepfreeze.frameworks.held import (
    HeldArrays,
    array_maker,
    warn_if_untested,
)
from deepfreeze.frameworks.tensorflow.dtypes import dtype_name
from deepfreeze.frameworks.tensorflow.objects import (
    leaves_of,
    match_generator,
    match_iterator,
    store_generator,
    store_iterator,
)
from deepfreeze.frameworks.tensorflow.reads import read, read_together
from deepfreeze.frameworks.tensorflow.replicas import (
    is_distributed,
    match_replicas,
    store_replicas,
)
from deepfreeze.state.contracts import Adapter, Filler, Remake, Sink
from deepfreeze.state.tree import Node, tag_of

_TESTED = "2.21."
_KIND = "tf.Module"  # an object that is stored by its variables and other leaves


EncodeGroup: TypeAlias = Callable[[Mapping[str, Any], str, Sink], dict[str, Node]]
# Keras's adapter for an object of Keras, else None. It stores groups of variables by the function.
OfKeras: TypeAlias = Callable[[object, EncodeGroup], Adapter | None]


class TensorFlowAdapter(Adapter):
    """Holds the present values of variables, and assigns them the stored ones."""

    numerous = (ResourceVariable,)

    def __init__(self, keras: OfKeras | None = None) -> None:
        """`keras`: gives Keras's adapter for an object of Keras, as TensorFlow does not see the
        seeds in a layer.
        """
        self._keras = keras
        self._arrays = HeldArrays()
        # Keyed by the id() of a variable's handle, which several may have. The handle is kept, so
        # that no other gets its id(). Without this, a variable that copies when read would be
        # stored twice.
        self._known: dict[int, tuple[str, object]] = {}
        self._began = False

    def _keras_of(self, value: object) -> Adapter | None:
        return None if self._keras is None else self._keras(value, self.encode_group)

    def _is_of_keras(self, value: object) -> bool:
        return self._keras_of(value) is not None

    def claims(self, value: object) -> bool:
        return isinstance(value, (Trackable, tf.Tensor, tf.Variable))

    def encode(self, value: Any, path: str, capture: Sink) -> Node:
        self._begin(path)
        if isinstance(value, tf.Variable):
            return self._encode_variable(value, path, capture)
        if isinstance(value, tf.Tensor):
            return self._arrays.store(_value_of(value, path), path, capture)
        capture.refuse_inside(value, path)
        return self._encode_object(value, path, capture)

    def _begin(self, path: str) -> None:
        """Makes the checks that are needed once per save."""
        if self._began:
            return
        warn_if_untested("TensorFlow", tf.__version__, _TESTED)
        if not tf.executing_eagerly():
            raise EncodeError(f"{shown(path)}: within a tf.function nothing has a value to store")
        self._began = True

    def _encode_object(self, value: Any, path: str, capture: Sink) -> Node:
        keras_adapter = self._keras_of(value)
        if keras_adapter is not None:
            return keras_adapter.encode(value, path, capture)
        if isinstance(value, tf.random.Generator):
            return store_generator(value, path, capture)
        if isinstance(value, tf.data.Iterator):
            return store_iterator(value, path, capture)
        leaves = dict(leaves_of(value, path, self._is_of_keras))
        variables = {name: leaf for name, leaf in leaves.items() if isinstance(leaf, tf.Variable)}
        nodes = self.encode_group(variables, path, capture)
        for name, leaf in leaves.items():
            if name not in variables:
                nodes[name] = self._encode_object(leaf, join(path, name), capture)
        return {"$": "object", "t": _KIND, "v": {name: nodes[name] for name in leaves}}

    def encode_group(
        self, variables: Mapping[str, Any], path: str, capture: Sink
    ) -> dict[str, Node]:
        """The nodes of variables that belong together, by name."""
        self._begin(path)
        values = read_together(variables.values())
        nodes: dict[str, Node] = {}
        for name, variable in variables.items():
            value, place = values.get(id(variable)), join(path, name)
            if value is None:
                nodes[name] = self._encode_variable(variable, place, capture)
            else:
                nodes[name] = self._store(variable, value, place, capture)
        return nodes

    def _encode_variable(self, variable: Any, path: str, capture: Sink) -> Node:
        if is_distributed(variable):
            arrays = [_array_of(read(each, path)) for each in variable.values]
            return store_replicas(arrays, path, partial(self._arrays.store, capture=capture))
        return self._store(variable, read(variable, path), path, capture)

    def _store(self, variable: Any, value: Any, path: str, capture: Sink) -> Node:
        handle = variable.handle
        known = self._known.get(id(handle))
        if known is not None:
            return {"$": "array", "k": known[0]}
        array = _array_of(value)
        if not array.size and not variable.is_initialized():  # TensorFlow reads it as empty
            raise EncodeError(f"{shown(path)}: {variable.name} has no value yet")
        node = self._arrays.store(array, path, capture)
        self._known[id(handle)] = node["k"], handle
        return node

    def match(self, node: Node, live: Any, path: str, plan: Filler) -> Remake:
        if isinstance(live, tf.Variable):
            self._match_variable(node, live, path, plan)
        elif isinstance(live, tf.Tensor):
            if plan.keys.wants(path) and _fits(node, live, path, plan):
                make = array_maker(node, path, plan)
                return lambda: tf.constant(make())
        else:
            self._match_object(node, live, path, plan)
        return None

    def _match_variable(self, node: Node, live: Any, path: str, plan: Filler) -> None:
        if is_distributed(live):
            match_replicas(node, live, path, plan, self._match_variable)
            return
        if plan.keys.wants(path) and _fits(node, live, path, plan):
            make = array_maker(node, path, plan)
            plan.apply(path, lambda: live.assign(make()))

    def _match_object(self, node: Node, live: Any, path: str, plan: Filler) -> None:
        keras_adapter = self._keras_of(live)
        if keras_adapter is not None:
            keras_adapter.match(node, live, path, plan)
            return
        if isinstance(live, tf.random.Generator):
            match_generator(node, live, path, plan)
        elif isinstance(live, tf.data.Iterator):
            match_iterator(node, live, path, plan)
        elif tag_of(node) != "object" or node["t"] != _KIND:
            plan.mismatch(path, node, f"a {type(live).__qualname__}")
        else:
            self._match_leaves(dict(node["v"]), live, path, plan)

    def _match_leaves(self, stored: dict[str, Node], live: Any, path: str, plan: Filler) -> None:
        for name, leaf in leaves_of(live, path, self._is_of_keras):
            place = join(path, name)
            if name not in stored:
                plan.miss(place)
            elif isinstance(leaf, tf.Variable):
                self._match_variable(stored.pop(name), leaf, place, plan)
            else:
                self._match_object(stored.pop(name), leaf, place, plan)
        for name, node in stored.items():
            plan.surplus(node, join(path, name))

    def environment(self) -> dict[str, str]:
        threads = tf.config.threading
        return {
            "tensorflow": tf.__version__,
            "tensorflow_threads": f"{threads.get_intra_op_parallelism_threads()}",
        }


def _value_of(tensor: Any, path: str) -> np.ndarray[Any, Any]:
    if not isinstance(tensor, EagerTensor):
        raise EncodeError(f"{shown(path)}: a symbolic tensor has no value to store")
    dtype_name(tensor.dtype, path)
    return _array_of(tensor)


def _array_of(tensor: Any) -> np.ndarray[Any, Any]:
    """A view of a tensor's memory, or a copy from a device. It holds the tensor.

    The dtype must have been checked: reading texts or handles as an array ends the process.
    """
    try:
        return np.asarray(tensor)
    except ValueError:  # a single bfloat16: TensorFlow makes no array of it
        return np.asarray(tensor.numpy())


def _fits(node: Node, live: Any, path: str, plan: Filler) -> bool:
    """Whether a stored node has the dtype and shape of a variable or tensor; notes a misfit."""
    form = plan.form_in(node)
    if form is None:
        plan.mismatch(path, node, f"a {type(live).__qualname__}")
        return False
    # A variable may have dimensions of any size.
    shape = form[1] if live.shape.is_compatible_with(form[1]) else _known(live.shape)
    return plan.same_form(path, form, (dtype_name(live.dtype, path), shape))


def _known(shape: tf.TensorShape) -> tuple[int, ...]:
    return tuple(-1 if size is None else size for size in shape)
