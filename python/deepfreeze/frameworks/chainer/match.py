"""Restores a stored Chainer object into a live one: arrays in place, the rest by serialize()."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from deepfreeze.base.names import join
from deepfreeze.frameworks.chainer.names import Taken, is_data
from deepfreeze.frameworks.chainer.optimizers import made_later
from deepfreeze.frameworks.chainer.rest import all_of, optimizers_of, put
from deepfreeze.frameworks.numpy import dtype_name
from deepfreeze.state.contracts import Filler
from deepfreeze.state.kinds import kind_of_live, kind_of_node
from deepfreeze.state.tree import Node


class ObjectMatch:
    """The restore of one object, whose present values were taken."""

    def __init__(self, live: Any, taken: Taken, path: str, plan: Filler) -> None:
        self._live = live
        self._taken = taken
        self._values = taken.values
        self._path = path
        self._plan = plan
        self._made: dict[str, Callable[[], Any]] = {}
        self._without_state: list[Any] = []

    def match(self, stored: dict[str, Node]) -> None:
        """Plans the restore; the plan notes misfits before anything is modified."""
        later = made_later(optimizers_of(self._taken), stored)
        self._values = dict.fromkeys([*later.made, *later.gone]) | self._values
        for name, rule in later.gone.items():
            if self._wants(name):
                self._values[name] = None
                self._without_state.append(rule)
        here = self._values | later.made
        for name in sorted(here):
            if name in stored:
                self._match_one(name, stored[name], here[name], is_made=name not in later.made)
            elif name not in later.gone and not is_data(name):
                self._plan.miss(join(self._path, name))
        for name in sorted(stored.keys() - here.keys()):
            self._match_surplus(name, stored[name])
        self._plan.apply(self._path, self._load)

    def _wants(self, name: str) -> bool:
        return self._plan.keys.wants(join(self._path, name))

    def _match_one(self, name: str, node: Node, value: Any, *, is_made: bool) -> None:
        if not self._wants(name):
            return
        path = join(self._path, name)
        form = self._plan.form_in(node)
        is_array = isinstance(value, np.ndarray) and (value.ndim or form is not None)
        if is_array and is_made:
            self._fill(name, node, value)
        elif is_array and form is not None:
            # Nothing of this array is live yet, so the stored one is loaded.
            if self._plan.same_form(path, form, (dtype_name(value.dtype), value.shape)):
                self._make(name, node)
        elif not is_array and self._may_become(node, value):
            self._make(name, node)
        else:
            self._plan.mismatch(path, node, f"a {type(value).__qualname__}")

    def _fill(self, name: str, node: Node, array: Any) -> None:
        path = join(self._path, name)
        if not array.flags.writeable:  # a link drops an array that replaces its parameter's
            self._plan.unfit(path, "the live array is read-only, and can't be filled")
            return
        adapter = next(each for each in self._plan.adapters if each.claims(array))
        remake = adapter.match(node, array, path, self._plan)
        if remake is not None:
            self._made[name] = remake

    def _make(self, name: str, node: Node) -> None:
        self._made[name] = self._plan.fresh(node, join(self._path, name))

    def _may_become(self, node: Node, value: Any) -> bool:
        """Whether a value that is no array may become the node's: numbers fit each other."""
        if value is None or node is None:
            return True
        form = self._plan.form_in(node)
        if form is not None:
            return form[1] == ()
        return isinstance(value, np.ndarray) or kind_of_node(node) == kind_of_live(value)

    def _match_surplus(self, name: str, node: Node) -> None:
        if not is_data(name):
            self._plan.surplus(node, join(self._path, name))
        if self._wants(name):
            self._make(name, node)

    def _load(self) -> None:
        for rule in self._without_state:
            rule._state = None
        values = self._values | {name: make() for name, make in self._made.items()}
        put(self._live, self._taken, values)
        self._warn_of_conversions(values)

    def _warn_of_conversions(self, values: dict[str, Any]) -> None:
        """Warns of other dtypes: a parameter that had no shape gets its dtype at its first use."""
        made = [name for name in self._made if isinstance(values[name], np.ndarray)]
        shaped = [name for name in made if self._values.get(name) is None]
        now = all_of(self._live).values if shaped else {}
        for name in shaped:
            dtype = getattr(now.get(name), "dtype", None)
            if dtype not in (None, values[name].dtype):
                path = join(self._path, name)
                warnings.warn(f"{path}: stored {values[name].dtype}, made {dtype}", stacklevel=2)
