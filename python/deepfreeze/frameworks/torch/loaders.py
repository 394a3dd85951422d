"""Modules with loaders of their own load values that were stored under other names or forms.

1. find: the outermost modules whose loading is more than a copy (hooks, lazy parameters,
   _load_from_state_dict, load_state_dict of their own): module_match.py.
2. ask: if the stored values differ in form from the live ones, the module's own loading gets them,
   after they have been read and before any other memory is written.
3. judge: missing and unexpected names are those that are left after that. If they forbid the
   restore, the module gets its old state back.
"""

from __future__ import annotations

import copy
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from deepfreeze.base.names import join, shown
from deepfreeze.errors import MismatchError
from deepfreeze.frameworks.torch.modules import Versions, canonical_names, set_versions
from deepfreeze.frameworks.torch.sharded import is_sharded
from deepfreeze.frameworks.torch.tensors import dtype_name, form_of, is_special, layout_of
from deepfreeze.state.contracts import Filler
from deepfreeze.state.entry import Layout, Place
from deepfreeze.state.registry import REGISTERED
from deepfreeze.state.tree import Node, tag_of


class _Left(NamedTuple):
    """The entries that a module's loading has not put in place as they were stored."""

    missing: list[str]
    unexpected: list[str]
    cast: dict[str, str]  # the dtype that it was cast to, by the stored name


class _CastWatch(TorchFunctionMode):
    """Sees copy_() of a stored tensor, or of a part of one, into a live one of another dtype.

    A part may be of any memory, so copies of parts count only if they go into the module and lose
    bits.
    """

    def __init__(self, module: nn.Module, state: Mapping[str, Any]) -> None:
        super().__init__()
        self._stored = {id(value): name for name, value in state.items()}
        named = (*module.named_parameters(), *module.named_buffers())
        self._live = {id(tensor): name for name, tensor in named}
        self.found: dict[str, str] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.copy_ and len(args) > 1 and isinstance(args[1], torch.Tensor):
            self._look(*args[:2])
        return func(*args, **(kwargs or {}))

    def _look(self, live: torch.Tensor, given: torch.Tensor) -> None:
        if live.dtype == given.dtype:
            return
        name = self._stored.get(id(given))
        if name is None and _loses_bits(given, live.dtype):
            name = self._live.get(id(live))
        if name is not None:
            text = f"stored {_form(given)}, the module would load it into {_form(live)}"
            self.found[name] = text


def _loses_bits(given: torch.Tensor, dtype: torch.dtype) -> bool:
    with torch.no_grad(), torch._C.DisableTorchFunction():
        if is_special(given) or given.numel() == 0:
            return False
        back = given.detach().to(dtype).to(given.dtype)
        return bool(((back != given) & ~(back.isnan() & given.isnan())).any())


class Asked:
    """One module that loads stored values by itself.

    `values`: functions that make the stored values, by their canonical names within the module.
    `versions`: versions of the modules that stored them.
    `by_own_load`: by a load_state_dict() that its class, or the object itself, replaces.
    """

    def __init__(
        self,
        module: nn.Module,
        path: str,
        values: Mapping[str, Callable[[], Any]],
        versions: Versions,
        *,
        by_own_load: bool,
    ) -> None:
        self._module = module
        self._path = path
        self._values = values
        self._versions = versions
        self._own = by_own_load

    def ask(self, plan: Filler) -> Callable[[], None]:
        """Has the module load; returns a function that undoes it.

        If `strict`, and a value is left over or refused: MismatchError, with the module as it was.
        """
        before = _Before(self._module)
        try:
            self._ask(before, plan)
        except BaseException:  # an interrupt, too, must leave no half of it
            plan.modifying = True
            before.put_back()
            plan.modifying = False
            raise
        return before.put_back

    def _ask(self, before: _Before, plan: Filler) -> None:
        state = self._state()
        try:
            left = self._load(state, strict=plan.strict)
        except Exception as cause:
            if plan.strict:
                raise MismatchError(f"{shown(self._path)}: {self._reason(cause)}") from cause
            before.put_back()
            self._ask_for_the_rest(state, before, plan, cause)
            return
        self._judge(left, plan)

    def _state(self) -> OrderedDict[str, Any]:
        """The stored values, under the names that the module has for them now."""
        canonical = canonical_names(self._module)
        live = nn.Module.state_dict(self._module)
        names = {canonical(name): name for name in live}
        state = OrderedDict((names.get(name, name), make()) for name, make in self._values.items())
        metadata = live._metadata  # type: ignore[attr-defined]  # torch sets it
        set_versions(metadata, self._versions, canonical)
        vars(state)["_metadata"] = metadata
        return state

    def _load(self, state: Mapping[str, Any], *, strict: bool) -> _Left:
        with _CastWatch(self._module, state) as watch:
            if self._own:
                result: Any = _own_load(self._module, state, strict=strict)
            else:
                result = nn.Module.load_state_dict(self._module, state, strict=False)
        missing = getattr(result, "missing_keys", None) or ()
        unexpected = getattr(result, "unexpected_keys", None) or ()
        return _Left(list(missing), list(unexpected), watch.found)

    def _judge(self, left: _Left, plan: Filler) -> None:
        canonical = canonical_names(self._module)
        for name, text in left.cast.items():
            plan.unfit(join(self._path, canonical(name)), text)
        plan.missing += [join(self._path, canonical(name)) for name in left.missing]
        plan.unexpected += [join(self._path, canonical(name)) for name in left.unexpected]
        plan.check()

    def _ask_for_the_rest(
        self, state: OrderedDict[str, Any], before: _Before, plan: Filler, cause: Exception
    ) -> None:
        """Without strict: takes tensors that have the live shape, or a name that is not live."""
        live = nn.Module.state_dict(self._module)
        canonical = canonical_names(self._module)
        for name in [name for name in state if _has_other_shape(state[name], live.get(name))]:
            text = f"stored {_form(state.pop(name))}, live {_form(live[name])}"
            plan.unfit(join(self._path, canonical(name)), text)
        try:
            left = self._load(state, strict=False)
        except Exception:
            before.put_back()
            plan.unfit(self._path, self._reason(cause))
            for name in live:  # all its values stay, too
                plan.unfit(join(self._path, canonical(name)), "its module stays as it is")
            plan.check()
            return
        reported = plan.mismatched.keys()
        missing = [name for name in left.missing if join(self._path, name) not in reported]
        left = left._replace(missing=missing)
        self._judge(left, plan)

    def _reason(self, cause: Exception) -> str:
        return f"{type(self._module).__qualname__} can't load the stored values: {cause}"


def _own_load(module: nn.Module, state: Mapping[str, Any], *, strict: bool) -> object:
    if strict:
        return module.load_state_dict(state)
    try:
        return module.load_state_dict(state, strict=False)
    except TypeError:  # it has no such argument
        return module.load_state_dict(state)


def _has_other_shape(stored: object, live: object) -> bool:
    if not isinstance(stored, torch.Tensor) or not isinstance(live, torch.Tensor):
        return False
    return not is_lazy(live) and stored.shape != live.shape


def _form(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def may_be_asked(module: nn.Module) -> bool:
    """False with shards, which torch loads from shards only, and if loading can't be undone."""
    if any(isinstance(inner, torch.jit.ScriptModule) for inner in module.modules()):
        return False
    tensors = (*module.parameters(), *module.buffers())
    return not any(is_sharded(tensor) or tensor.is_meta for tensor in tensors)


def differs(stored: Mapping[str, Node], live: Mapping[str, object], plan: Filler) -> bool:
    """Whether a module can't simply be filled.

    Another dtype alone does not count: the module's loading would cast it.
    """
    if stored.keys() != live.keys():
        return True
    return any(_has_another_form(stored[name], value, plan) for name, value in live.items())


def _has_another_form(node: Node, live: object, plan: Filler) -> bool:
    if type(live) in REGISTERED:
        return tag_of(node) != "ext"
    is_tensor = tag_of(node) == "tensor"
    if not isinstance(live, torch.Tensor) or is_special(live):
        return is_tensor
    if is_lazy(live) or not is_tensor:
        return True
    return form_of(node, plan)[1] != tuple(live.shape)


def held_by_asked(node: Node | None, live: torch.Tensor, path: str, plan: Filler) -> None:
    """Notes a tensor's memory in an asked module, and the stored elements that it will hold."""
    if is_lazy(live) or is_special(live) or is_traceable_wrapper_subclass(live):
        return
    shape, size = tuple(live.shape), live.element_size()
    form = dtype_name(live.dtype), shape
    if node is not None and tag_of(node) == "tensor" and form_of(node, plan) == form:
        key, view = str(node["k"]), node.get("view")
    else:
        key, view = f"\0asked {path}", None
    place = Place(
        path=path,
        address=live.data_ptr(),
        bytes=live.numel() * size,
        direct=False,
        copy=lambda: None,
        live=layout_of(live),
        stored=Layout.stored(view, shape, size),
        offset=int(view["offset"]) * size if view else 0,
        device=str(live.device),
    )
    plan.holds(key, place)


_CONTAINERS = (dict, OrderedDict, defaultdict, list, set)


class _Before:
    """The old state of a module: attributes, containers one level deep, memory and contents of its
    tensors. The state of other objects that it refers to is not kept."""

    def __init__(self, module: nn.Module) -> None:
        tables = [vars(inner) for inner in module.modules()]
        values = [value for table in tables for value in table.values()]
        containers = (value for value in values if type(value) in _CONTAINERS)
        self._containers: list[tuple[Any, Any]] = [
            (held, copy.copy(held)) for held in (*tables, *containers)
        ]
        loose = (value for value in values if isinstance(value, torch.Tensor))
        tensors: list[Any] = [*module.parameters(), *module.buffers(), *loose]
        self._lazy = [(tensor, type(tensor)) for tensor in tensors if is_lazy(tensor)]
        self._contents = [
            (tensor, tensor.data, tensor.detach().clone())
            for tensor in tensors
            if not is_lazy(tensor)
        ]

    def put_back(self) -> None:
        """Gives the module its old state again."""
        for live, before in self._containers:
            if isinstance(live, list):
                live[:] = before
            else:
                live.clear()
                live.update(before)
        for lazy, kind in self._lazy:
            if type(lazy) is not kind:  # loading has made it a parameter of some shape
                lazy.data = torch.empty(0, dtype=lazy.dtype, device=lazy.device)
                lazy.__class__ = kind
        with torch.no_grad():
            for tensor, data, content in self._contents:
                if tensor.dtype != data.dtype or tensor.data_ptr() != data.data_ptr():
                    tensor.data = data
                data.copy_(content)
