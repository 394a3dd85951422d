"""Keras 3: models, layers, optimizers, metrics and seed generators, on each of its backends.

Variables are identified by their place in Keras's own lists, because their paths change from one
instance to the next. The path without the numbers that Keras adds is part of the name, and is
compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from itertools import chain
from types import MappingProxyType
from typing import Any, TypeAlias

import keras

from deepfreeze.base.names import join, shown
from deepfreeze.errors import EncodeError
from deepfreeze.frameworks.held import HeldArrays, array_maker, warn_if_untested
from deepfreeze.frameworks.keras.untracked import untracked_of, warn_of_vocabularies
from deepfreeze.frameworks.keras.variables import (
    TakenModel,
    assign,
    build_optimizer,
    finalizers_of,
    groups_of,
    has_metrics_to_come,
    has_replicas,
    layers_of,
    live_form,
    name_of,
    same_name,
    sync,
    value_of,
)
from deepfreeze.state.contracts import Adapter, Filler, Remake, Sink
from deepfreeze.state.tree import Node, tag_of

_TESTED = "3.15."
_KIND = "keras"  # of an object that is stored by its variables
_UNTRACKED = "untracked"

Finalizers = Mapping[int, Callable[[], object]]
# Stores variables that belong together, by name: TensorFlow's adapter reads them all at once.
EncodeGroup: TypeAlias = Callable[[Mapping[str, Any], str, Sink], dict[str, Node]]


class KerasAdapter(Adapter):
    """Stores the backend's values of variables, and assigns stored values to them."""

    def __init__(self, of_tensorflow: EncodeGroup | None = None) -> None:
        self._arrays = HeldArrays()  # for the jax backend; the others' adapters have their own
        self._of_tensorflow = of_tensorflow if keras.backend.backend() == "tensorflow" else None

    def claims(self, value: object) -> bool:
        return isinstance(value, (TakenModel, *_kinds()))

    def encode(self, value: Any, path: str, capture: Sink) -> Node:
        warn_if_untested("Keras", keras.__version__, _TESTED)
        if isinstance(value, keras.Variable):
            return self._encode_variable(value, path, capture)
        capture.refuse_inside(value, path)
        taken = value.values if isinstance(value, TakenModel) else None
        model = value.model if isinstance(value, TakenModel) else value
        sync(model)
        groups = groups_of(model)
        nodes = {
            group: self._encode_group(variables, taken, join(path, group), capture)
            for group, variables in groups.items()
        }
        nodes.update(_encode_untracked(value, groups, path, capture))
        return {"$": "object", "t": _KIND, "v": nodes}

    def _encode_group(
        self, variables: list[Any], taken: Mapping[int, Any] | None, path: str, capture: Sink
    ) -> dict[str, Node]:
        named = {name_of(variable, index): variable for index, variable in enumerate(variables)}
        if taken is not None:
            return {
                name: _encode_taken(variable, join(path, name), taken, capture)
                for name, variable in named.items()
            }
        if self._of_tensorflow is not None:
            values = {name: value_of(each, join(path, name)) for name, each in named.items()}
            return self._of_tensorflow(values, path, capture)
        return {
            name: self._encode_variable(variable, join(path, name), capture)
            for name, variable in named.items()
        }

    def _encode_variable(self, variable: Any, path: str, capture: Sink) -> Node:
        value = value_of(variable, path)
        if keras.backend.backend() == "jax":
            return self._arrays.store(value, path, capture)
        return capture.encode(value, path)

    def match(self, node: Node, live: Any, path: str, plan: Filler) -> Remake:
        if isinstance(live, keras.Variable):
            _match_variable(node, live, path, plan)
        elif tag_of(node) != "object" or node["t"] != _KIND:
            plan.mismatch(path, node, f"a {type(live).__qualname__}")
        else:
            sync(live)
            stored = node["v"].get("optimizer", {})
            if any(plan.keys.wants(join(join(path, "optimizer"), name)) for name in stored):
                build_optimizer(live, len(stored))
            _match_groups(dict(node["v"]), live, path, plan)
        return None

    def environment(self) -> dict[str, str]:
        return {"keras": f"{keras.__version__} on {keras.backend.backend()}"}


def _encode_taken(variable: Any, path: str, values: Mapping[int, Any], capture: Sink) -> Node:
    if id(variable) not in values:
        raise EncodeError(
            f"{shown(path)}: {variable.path} was made after fit() had begun, and was not taken: "
            "build the model before fit()"
        )
    return capture.encode(values[id(variable)], path)


def _encode_untracked(
    value: Any, groups: dict[str, list[Any]], path: str, capture: Sink
) -> dict[str, Node]:
    layers = layers_of(value.model if isinstance(value, TakenModel) else value)
    warn_of_vocabularies(layers)
    found = untracked_of(layers, chain.from_iterable(groups.values()))
    place = join(path, _UNTRACKED)
    if found and isinstance(value, TakenModel):  # their present values are of a later step
        raise EncodeError(f"{shown(place)}: made after fit() had begun: {', '.join(found)}")
    nodes = {name: capture.encode(each, join(place, name)) for name, each in found.items()}
    return {_UNTRACKED: nodes} if nodes else {}


@cache
def _kinds() -> tuple[type, ...]:
    if not hasattr(keras, "Variable"):  # Keras 2 is another program
        return ()
    return (
        keras.Variable,
        keras.layers.Layer,  # models too
        keras.optimizers.Optimizer,
        keras.metrics.Metric,
        keras.random.SeedGenerator,
    )


def _match_groups(stored: dict[str, Node], live: Any, path: str, plan: Filler) -> None:
    groups, finalizers = groups_of(live), finalizers_of(live)
    _match_untracked(stored.pop(_UNTRACKED, {}), live, groups, join(path, _UNTRACKED), plan)
    for group, variables in groups.items():
        nodes, place = stored.pop(group, {}), join(path, group)
        if group == "metrics" and has_metrics_to_come(live):
            # Metrics of compile() begin anew; the model's own exist already.
            _match_by_name(nodes, variables, place, plan, leaves_rest=True)
        elif plan.strict:
            _match_by_index(nodes, variables, group, place, plan, finalizers)
        else:
            _match_by_name(nodes, variables, place, plan, finalizers)
    for group, nodes in stored.items():
        _surplus(nodes, join(path, group), plan)


def _match_untracked(
    stored: dict[str, Node], live: Any, groups: dict[str, list[Any]], path: str, plan: Any
) -> None:
    found = untracked_of(layers_of(live), chain.from_iterable(groups.values()))
    for name, each in found.items():
        if name in stored:
            plan.match(stored.pop(name), each, join(path, name))
        else:
            plan.miss(join(path, name))
    for name, node in stored.items():
        plan.surplus(node, join(path, name))


def _match_by_index(
    stored: dict[str, Node], variables: list[Any], group: str, path: str, plan: Filler,
    finalizers: Finalizers,
) -> None:  # fmt: skip
    """Matches by index; names are compared, but choose nothing."""
    names = list(stored)
    for index, variable in enumerate(variables):
        live_name = name_of(variable, index)
        if index >= len(names):
            plan.miss(join(path, live_name))
            continue
        place = join(path, names[index])
        if not same_name(names[index], live_name, group) and plan.keys.wants(place):
            plan.unfit(place, f"the live variable in its place is {live_name}")
        else:
            _match_variable(stored[names[index]], variable, place, plan, finalizers)
    if len(names) > len(variables) and not variables:
        _surplus(stored, path, plan)
        return
    for name in names[len(variables) :]:
        plan.surplus(stored[name], join(path, name))


def _match_by_name(
    stored: dict[str, Node], variables: list[Any], path: str, plan: Filler,
    finalizers: Finalizers = MappingProxyType({}), *, leaves_rest: bool = False,
) -> None:  # fmt: skip
    """Matches by name; equal names match in their order. Indices shift if a layer was added."""
    unused: dict[str, list[str]] = {}
    for name in stored:
        unused.setdefault(name.partition(".")[2], []).append(name)
    for index, variable in enumerate(variables):
        live_name = name_of(variable, index)
        names = unused.get(live_name.partition(".")[2])
        if names:
            name = names.pop(0)
            _match_variable(stored[name], variable, join(path, name), plan, finalizers)
        elif not leaves_rest:
            plan.miss(join(path, live_name))
    for name in () if leaves_rest else chain.from_iterable(unused.values()):
        plan.surplus(stored[name], join(path, name))


def _surplus(stored: dict[str, Node], path: str, plan: Filler) -> None:
    """Reports a whole group that the live object lacks: most often it is not built yet."""
    wanted = [name for name in stored if plan.keys.wants(join(path, name))]
    if wanted:
        plan.unfit(
            path,
            f"{len(wanted)} variables such as {wanted[0]} are stored, but none is live: "
            "compile the model, and build it by a train_on_batch(), before it is restored",
        )


def _match_variable(
    node: Node, live: Any, path: str, plan: Any, finalizers: Finalizers = MappingProxyType({})
) -> None:
    if not plan.keys.wants(path):
        return
    if has_replicas(live):
        plan.match(node, live._value, path)
        return
    form = plan.form_in(node)
    if form is None:
        plan.mismatch(path, node, "a variable of Keras")
    elif plan.same_form(path, form, live_form(live)):
        make = array_maker(node, path, plan)
        plan.apply(path, lambda: assign(live, make()))
        if id(live) in finalizers:
            plan.apply(path, finalizers[id(live)])
