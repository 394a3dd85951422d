"""TensorFlow's objects: their leaves by name, generators, and iterators of data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.trackable.base import Trackable

from deepfreeze.base.names import join, shown
from deepfreeze.errors import EncodeError
from deepfreeze.frameworks.held import array_maker
from deepfreeze.state.contracts import Filler, Sink
from deepfreeze.state.tree import Node, tag_of

_GENERATOR = "tf.random.Generator"
_ITERATOR = "tf.data.Iterator"
VARIABLES_AND_GENERATORS = (tf.Variable, tf.random.Generator)
_LEAVES = (*VARIABLES_AND_GENERATORS, tf.data.Iterator)  # stored by themselves


def variable_of(value: Any) -> Any:
    """A variable itself, or the variable that has a generator's state."""
    return value if isinstance(value, tf.Variable) else value.state


def leaves_of(
    root: Any, path: str, is_of_keras: Callable[[object], bool]
) -> Iterator[tuple[str, Any]]:
    """The leaves of a tracked object that are stored by themselves, each once, with their names.

    Names are dotted attribute names, as in tf.train.Checkpoint; of several the first.
    Objects of Keras are leaves: their own adapter sees the seeds in a layer.
    """
    if isinstance(root, tf.data.Dataset):
        raise EncodeError(
            f"{shown(path)}: a data set has no position to store: put iter() of it into the state"
        )
    seen: set[int] = set()
    names: set[str] = set()
    todo = [("", root)]
    while todo:
        name, value = todo.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, _LEAVES) or is_of_keras(value):
            if name in names:
                raise EncodeError(f"{shown(join(path, name))}: two attributes have this name")
            names.add(name)
            yield name, value
        else:
            inner = _children(value, join(path, name) if name else path)
            todo += [(join(name, key), each) for key, each in reversed(inner.items())]


def _children(value: Any, path: str) -> dict[str, Any]:
    saves_itself = type(value)._serialize_to_tensors is not Trackable._serialize_to_tensors
    if saves_itself:  # a table, for example: its values are in no variable
        raise EncodeError(
            f"{shown(path)}: a {type(value).__qualname__} can't be stored; put its exported "
            "values into the state"
        )
    try:
        return dict(tf.train.TrackableView(value).children(value))
    except ValueError as cause:  # a list that was changed without TensorFlow's notice
        raise EncodeError(f"{shown(path)}: {cause}") from cause


def store_generator(generator: Any, path: str, capture: Sink) -> Node:
    """The node of a tf.random.Generator."""
    state = capture.encode(generator.state, join(path, "state"))
    return {
        "$": "object",
        "t": _GENERATOR,
        "v": {"algorithm": int(generator.algorithm), "state": state},
    }


def match_generator(node: Node, live: Any, path: str, plan: Filler) -> None:
    """Plans how a live generator of the same algorithm takes a stored state."""
    if not plan.keys.wants_whole(path):
        return
    if tag_of(node) != "object" or node["t"] != _GENERATOR:
        plan.mismatch(path, node, "a tf.random.Generator")
        return
    stored, algorithm = node["v"], int(live.algorithm)
    form = plan.form_in(stored["state"])
    if stored["algorithm"] != algorithm or form != ("int64", tuple(live.state.shape)):
        plan.unfit(
            path,
            f"stored algorithm {stored['algorithm']} with a state of {form}, "
            f"live {algorithm} with {tuple(live.state.shape)}",
        )
        return
    make = array_maker(stored["state"], path, plan)
    plan.apply(path, lambda: live.state.assign(make()))


def store_iterator(iterator: Any, path: str, capture: Sink) -> Node:
    """The node of a tf.data iterator: position and buffers, in TensorFlow's own bytes.

    EncodeError if a part of the pipeline can't tell its position.
    """
    try:
        (state,) = iterator._serialize_to_tensors().values()
        data = bytes(tf.io.serialize_tensor(state).numpy())
    except tf.errors.OpError as cause:
        raise EncodeError(
            f"{shown(path)}: this iterator can't say its position ({cause.message}); save how many "
            "batches were drawn, and skip() as many after a restore"
        ) from cause
    position = capture.encode(data, join(path, "position"))
    return {"$": "object", "t": _ITERATOR, "v": {"position": position}}


def match_iterator(node: Node, live: Any, path: str, plan: Filler) -> None:
    """Plans how a live iterator of the same pipeline moves to the stored position."""
    if not plan.keys.wants_whole(path):
        return
    if tag_of(node) != "object" or node["t"] != _ITERATOR:
        plan.mismatch(path, node, "a tf.data.Iterator")
        return
    make = plan.fresh(node["v"]["position"], path)

    def put() -> None:
        state = tf.io.parse_tensor(make(), tf.variant)
        live._restore_from_tensors(dict.fromkeys(live._serialize_to_tensors(), state))

    plan.apply(path, put)
