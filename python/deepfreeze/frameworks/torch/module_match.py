"""Matches a stored nn.Module with a live one: filled in place, loaded only if it must be."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from deepfreeze.base.names import join, joined, shown
from deepfreeze.errors import MismatchError
from deepfreeze.frameworks.stateful import StatefulAdapter, call_state_dict
from deepfreeze.frameworks.torch.loaders import Asked, differs, held_by_asked, may_be_asked
from deepfreeze.frameworks.torch.modules import (
    Versions,
    are_other,
    canonical_names,
    is_flat,
    live_versions,
    names_of_now,
    set_versions,
    stored_versions,
)
from deepfreeze.frameworks.torch.registered import is_unknown_wrapper, match_registered
from deepfreeze.frameworks.torch.saved_bits import load_exactly
from deepfreeze.frameworks.torch.sharded import is_sharded
from deepfreeze.frameworks.torch.tensors import Fill, fill, fill_alike, is_special, same_tensor
from deepfreeze.state.contracts import Filler, UnknownTypeError
from deepfreeze.state.registry import REGISTERED
from deepfreeze.state.tree import Node, tag_of

_EXTRA_STATE = "_extra_state"
_PLAIN = (torch.Tensor, nn.Parameter)
_CHECKPOINT_WRAPPER = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper"
# They only add entries that layouts of older torch versions lack; all layouts here have them.
_COPY_ONLY = (
    nn.Module._load_from_state_dict,
    nn.modules.batchnorm._NormBase._load_from_state_dict,
    nn.modules.instancenorm._InstanceNorm._load_from_state_dict,
)


class _ModuleMatch:
    """Plans which stored entries fill a module, and which it has to load by itself."""

    def __init__(self, module: nn.Module, plan: Filler, stored: Versions, live: Versions) -> None:
        self._plan = plan
        self._stored_versions = stored
        self._live_versions = live
        self._owned = _owned_memory(module)
        self._module = module
        self._loaded: dict[str, Callable[[], Any]] = {}
        self._extra: dict[str, tuple[nn.Module, str, Callable[[], Any]]] = {}
        self._filled: set[str] = set()
        self._root_is_asked = False

    def ask_loaders(
        self, stored: dict[str, Node], live: dict[str, tuple[str, Any]], path: str
    ) -> None:
        """Has modules that load by themselves asked for differing values; removes these entries."""
        canonical = canonical_names(self._module)
        for full_name, inner in outermost_loaders(self._module):
            name = canonical(full_name) if full_name else ""
            here = {key: value for key, (_, value) in live.items() if _is_within(key, name)}
            there = {key: node for key, node in stored.items() if _is_within(key, name)}
            chosen = {self._plan.keys.wants(join(path, key)) for key in here.keys() | there}
            older = self._is_of_another_version(name)
            if False in chosen:
                self._take_versions(name)
                if not older or True not in chosen:
                    continue
                self._plan.unfit(
                    join(path, name) if name else path,
                    "stored by another version of its class: it can only be restored whole",
                )
            elif not may_be_asked(inner):
                continue
            elif older or differs(there, here, self._plan):
                self._ask(inner, name, there, here, path)
            else:
                continue
            for key in here:
                del live[key]
            for key in there:
                del stored[key]

    def _is_of_another_version(self, name: str) -> bool:
        """Whether another version has stored the module, or one within it."""
        names = [key for key in self._live_versions if _is_within(key, name)]
        return are_other(self._stored_versions, self._live_versions, names)

    def _take_versions(self, name: str) -> Versions:
        """Removes and returns a module's stored versions: loaded whole, it has the live ones."""
        keys = [key for key in self._stored_versions if _is_within(key, name)]
        return {key[len(name) :].lstrip("."): self._stored_versions.pop(key) for key in keys}

    def _ask(
        self,
        module: nn.Module,
        name: str,
        nodes: dict[str, Node],
        live: dict[str, object],
        path: str,
    ) -> None:
        is_root = module is self._module
        self._root_is_asked = self._root_is_asked or is_root
        by_own_load = is_root and has_own_load(module)  # torch calls that of the outermost alone
        versions = self._take_versions(name)
        place = join(path, name) if name else path
        try:
            values = {
                key.removeprefix(f"{name}."): self._plan.fresh(node, join(path, key))
                for key, node in nodes.items()
            }
        except UnknownTypeError as cause:
            for key in live:
                self._plan.unfit(join(path, key), str(cause))
            return
        plan = self._plan
        plan.ask(place, Asked(module, place, values, versions, by_own_load=by_own_load).ask)
        for key, value in live.items():
            if isinstance(value, torch.Tensor) and value.layout == torch.strided:
                held_by_asked(nodes.get(key), value, join(path, key), plan)

    def match_all(
        self, stored: dict[str, Node], live: dict[str, tuple[str, Any]], path: str
    ) -> None:
        """Plans the entries of the state_dict, by canonical names; takes them out of `stored`."""
        fills: list[Fill] = []
        names: dict[str, str] = {}  # of these
        for place, (short, (name, value)) in zip(joined(path, live), live.items(), strict=True):
            if short not in stored:
                self._plan.miss(place)
                continue
            inner = stored.pop(short)
            if not self._plan.keys.chooses_all and not self._plan.keys.wants(place):
                continue
            if self._owns(name, value):
                names[place] = name
                fills.append((inner, value, place))
                continue
            try:
                self._match_one(name, inner, value, place)
            except UnknownTypeError as cause:
                self._plan.unfit(place, str(cause).removeprefix(f"{place}: "))
        unlike = fill_alike(fills, self._plan)
        self._filled |= set(names.values()) - {names[place] for _, _, place in unlike}
        for inner, value, place in unlike:
            self._match_one(names[place], inner, value, place)
        for name, inner in stored.items():
            self._plan.surplus(inner, join(path, name))

    def _owns(self, name: str, live: Any) -> bool:
        """Whether it is a plain tensor in the module's own memory, and no extra state."""
        return (
            type(live) in _PLAIN
            and type(live) not in REGISTERED
            and not live.is_meta
            and live.layout is torch.strided
            and live.untyped_storage().data_ptr() in self._owned
            and not name.endswith(_EXTRA_STATE)
        )

    def _match_one(self, name: str, node: Node, live: object, path: str) -> None:
        """Plans one entry of the state_dict."""
        if name.rpartition(".")[2] == _EXTRA_STATE and self._match_extra_state(name, node, path):
            return
        known = REGISTERED.get(type(live))
        if known is not None and isinstance(live, torch.Tensor):
            remake = match_registered(node, live, known, path, self._plan)
            self._filled.add(name)
            if remake is not None:
                self._loaded[name] = remake
        elif isinstance(live, torch.Tensor) and is_unknown_wrapper(live):
            kind = type(live).__qualname__
            self._plan.mismatch(path, node, f"a {kind}, which df.register_type does not know")
        elif not isinstance(live, torch.Tensor):
            if tag_of(node) == "tensor":
                self._plan.mismatch(path, node, f"a {type(live).__qualname__}")
            else:
                self._loaded[name] = self._plan.fresh(node, path)
        elif is_lazy(live):
            self._plan.mismatch(path, node, "a lazy parameter: run a forward pass first")
        elif is_special(live) and tag_of(node) == "ext":
            self._loaded[name] = self._plan.fresh(node, path)
        elif is_special(live) or tag_of(node) != "tensor" or live.device.type == "meta":
            self._plan.mismatch(path, node, f"a {live.layout} tensor on {live.device}")
        elif is_sharded(live) or live.untyped_storage().data_ptr() in self._owned:
            self._filled.add(name)
            fill(node, live, path, self._plan)
        elif same_tensor(node, live, path, self._plan):
            self._loaded[name] = self._plan.fresh(node, path)

    def _match_extra_state(self, name: str, node: Node, path: str) -> bool:
        try:
            owner = self._module.get_submodule(name.rpartition(".")[0])
        except AttributeError:
            return False  # a hook renamed it: load_state_dict knows its module
        self._extra[name] = (owner, path, self._plan.fresh(node, path))
        return True

    def finish(self, path: str) -> None:
        """Plans load_state_dict() if a load does more than fill memory."""
        if self._root_is_asked:
            return
        if self._loaded or loads_by_itself(self._module):
            # It sets extra state too, so it has to be given the new state.
            self._loaded |= {name: make for name, (_, _, make) in self._extra.items()}
            self._plan.apply(path, lambda: self._load(path))
            return
        for owner, place, make in self._extra.values():
            self._plan.apply(place, _extra_setter(owner, make))

    def _load(self, path: str) -> None:
        live_state: Any = call_state_dict(self._module, path)  # includes values that were asked for
        values = OrderedDict(live_state)
        # Versions of the modules, by which they recognise older layouts.
        metadata = getattr(live_state, "_metadata", None)
        vars(values)["_metadata"] = metadata
        if metadata is not None:
            set_versions(metadata, self._stored_versions, canonical_names(self._module))
        if self._is_of_another_version(""):  # it may copy within a live tensor's memory
            values.update((k, v.clone()) for k, v in values.items() if torch.is_tensor(v))
        for name, make in self._loaded.items():
            values[name] = make()
        if not has_own_load(self._module):
            result: Any = self._module.load_state_dict(values, strict=False)
        else:
            result = self._module.load_state_dict(values)
        left = sorted(set(getattr(result, "unexpected_keys", None) or ()) - self._filled)
        if left and not self._plan.strict:
            self._plan.unexpected += [join(path, name) for name in left]
        elif left:
            raise MismatchError(
                f"{shown(path)}: {type(self._module).__qualname__}.load_state_dict() has no place "
                f"for {', '.join(left)}; if a hook renames them, another must name them back"
            )


def _is_within(name: str, module: str) -> bool:
    """Whether `name` is the name of that module, or of a part of it."""
    return not module or name == module or name.startswith(f"{module}.")


def _extra_setter(owner: nn.Module, make: Callable[[], Any]) -> Callable[[], None]:
    return lambda: owner.set_extra_state(make())


def match_module(node: Node, module: nn.Module, path: str, plan: Filler) -> None:
    """Plans how a live module takes a stored one."""
    plan.keys.wants_whole(path)  # so that a pattern for all of it counts as used
    live_state = call_state_dict(module, path)
    if not is_flat(live_state):
        StatefulAdapter(load_exactly).match(node, module, path, plan)
        return
    if tag_of(node) != "object" or node["t"] != "module":
        plan.mismatch(path, node, f"a module, {type(module).__qualname__}")
        return
    canonical = canonical_names(module, live_state)
    renamed = names_of_now(node["v"], map(canonical, live_state))
    stored = {renamed.get(name, name): inner for name, inner in node["v"].items()}
    live = {canonical(name): (name, value) for name, value in live_state.items()}
    versions = live_versions(live_state, canonical) or {}
    matching = _ModuleMatch(module, plan, stored_versions(node) or {}, versions)
    matching.ask_loaders(stored, live, path)
    matching.match_all(stored, live, path)
    matching.finish(path)


def _owned_memory(module: nn.Module) -> set[int]:
    tensors = [*module.parameters(), *module.buffers()]
    return {
        t.untyped_storage().data_ptr()
        for t in tensors
        if t.layout == torch.strided
        and not is_traceable_wrapper_subclass(t)  # shards are such, too
        and not is_lazy(t)
    }


# Modules that load by themselves


def has_own_load(module: nn.Module) -> bool:
    """Whether its class, or the object itself, replaces load_state_dict()."""
    method = getattr(module.load_state_dict, "__func__", None)
    return method is not nn.Module.load_state_dict


def loads_by_itself(module: nn.Module) -> bool:
    """Whether loading this module, or one within it, is more than copying."""
    return has_own_load(module) or any(map(_does_more, module.modules()))


def _does_more(module: nn.Module) -> bool:
    return bool(
        _hooks_that_count(module)
        or module._load_state_dict_post_hooks
        or getattr(module._load_from_state_dict, "__func__", None) not in _COPY_ONLY
    )


def _hooks_that_count(module: nn.Module) -> list[Any]:
    """Pre-hooks, except those of activation wrappers, which only put a prefix into names."""
    hooks = list(module._load_state_dict_pre_hooks.values())
    checkpoint_wrapper = sys.modules.get(_CHECKPOINT_WRAPPER)
    if checkpoint_wrapper is not None:
        prefixing = checkpoint_wrapper.ActivationWrapper._pre_load_state_dict_hook
        hooks = [hook for hook in hooks if getattr(hook, "hook", hook) is not prefixing]
    return hooks


def outermost_loaders(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The modules that load by themselves and lie in no other such module, with their names."""
    if has_own_load(module):
        yield "", module
        return
    yield from _outermost(module, "")


def _outermost(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    if _does_more(module):
        yield name, module
        return
    for key, inner in module.named_children():
        yield from _outermost(inner, f"{name}.{key}" if name else key)
