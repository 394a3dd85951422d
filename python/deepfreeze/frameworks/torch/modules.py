"""nn.Module: stored under its own names, without the wrappers around it.

The canonical names are those that torch.distributed.checkpoint.state_dict has, too. With them a
wrapper may come or go between save and restore. Data-parallel, compile, activation and FSDP
wrappers put a prefix into the names of a module; some of them take it out of state_dict() again by
hooks of their own.

A loader recognises the layout of an older version of its class by the versions of modules, which
torch keeps beside a state_dict(), in its attribute `_metadata`. All but 1 are stored.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeGuard

from torch import nn

from deepfreeze.base.names import Owner, join
from deepfreeze.frameworks.stateful import call_state_dict, object_node
from deepfreeze.state.contracts import Sink
from deepfreeze.state.tree import Node

Versions = dict[str, int]  # by the canonical name of the module

_PARALLEL = nn.parallel.DistributedDataParallel
# The child that a wrapper of torch holds, by a name that nothing else has.
_PRIVATE = ("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module", "_fpw_module")
# Wrappers of others, whose child has a name that a model may have as well: by package and class.
_OTHERS = {
    ("apex", "DistributedDataParallel"),
    ("deepspeed", "DeepSpeedEngine"),
    ("deepspeed", "PipelineEngine"),
    ("fairscale", "ShardedDataParallel"),
    ("megatron", "DistributedDataParallel"),
    ("megatron", "Float16Module"),
}


def encode_module(module: nn.Module, path: str, capture: Sink) -> Node:
    """The node of a module: the values of its state_dict(), without non-persistent buffers."""
    state = call_state_dict(module, path)
    if not is_flat(state):
        return object_node("stateful", state, path, capture)
    canonical = canonical_names(module, state)
    node: dict[str, Node] = object_node(
        "module", {canonical(name): value for name, value in state.items()}, path, capture
    )
    versions = live_versions(state, canonical)
    if versions is not None:
        node["versions"] = [[name, each] for name, each in versions.items() if each != 1]
    return node


def is_flat(state: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether a state_dict() gives names and values, as torch's own does."""
    return isinstance(state, Mapping) and set(map(type, state)) <= {str}


def own_buffers(module: nn.Module, path: str, capture: Sink) -> None:
    """Notes the owners of the buffers, if ranks train the module together.

    If DistributedDataParallel broadcasts them, all ranks continue with those of its first rank. If
    it does not, and under fully_shard(), each rank has its own. In any other module the ranks'
    buffers must be equal.
    """
    kinds = _kinds_in(module)
    has_shards = _have_shards(kinds)
    if not has_shards and not any(issubclass(kind, _PARALLEL) for kind in kinds):
        return
    if capture.keys.owner_of(path) is Owner.EACH:
        return
    owners: dict[str, Owner | None] = {}
    if has_shards:
        owners |= {name: Owner.EACH for name, _ in module.named_buffers()}
    for prefix, inner in module.named_modules():
        if isinstance(inner, _PARALLEL):  # it counts more than shards
            owner = _parallel_owner(inner)
            owners |= {name: owner for name, _ in inner.named_buffers(prefix)}
    canonical = canonical_names(module)
    for name, owner in owners.items():
        if owner is not None:
            capture.keys.own(join(path, canonical(name)), owner)


def _parallel_owner(module: Any) -> Owner | None:
    """Which rank owns the buffers; None on the rank whose buffers the others are given."""
    if not module.broadcast_buffers:
        return Owner.EACH
    import torch.distributed as dist

    first = dist.get_process_group_ranks(module.process_group)[0]
    return None if dist.get_rank() == first else Owner.ANOTHER


def _have_shards(kinds: set[type[nn.Module]]) -> bool:
    fsdp = sys.modules.get("torch.distributed.fsdp")
    return fsdp is not None and any(issubclass(kind, fsdp.FSDPModule) for kind in kinds)


def _kinds_in(module: nn.Module) -> set[type[nn.Module]]:
    """The types of a module and of all modules within it."""
    known = {id(module)}
    waiting = [module]
    kinds: set[type[nn.Module]] = set()
    while waiting:
        outer = waiting.pop()
        kinds.add(type(outer))
        for inner in outer._modules.values():
            if inner is not None and id(inner) not in known:
                known.add(id(inner))
                waiting.append(inner)
    return kinds


# Names


def canonical_names(module: nn.Module, names: Iterable[str] = ()) -> Callable[[str], str]:
    """A function that makes the names of a module's state_dict() or named_parameters() canonical.

    All names stay unchanged if two of `names` would become one.
    """
    if not any(_wrapped_name(inner) for inner in module.modules()):
        return lambda name: name
    canonical = _Canonical(module)
    names = list(names)
    if len({canonical(name) for name in names}) < len(names):
        return lambda name: name
    return canonical


class _Canonical:
    """Walks the modules once for all names with the same beginning."""

    def __init__(self, module: nn.Module) -> None:
        self._known: dict[str, tuple[nn.Module | None, str]] = {"": (module, "")}

    def __call__(self, name: str) -> str:
        return self._walked(name)[1]

    def _walked(self, name: str) -> tuple[nn.Module | None, str]:
        """The module of that name, if it is one, and the name without the prefixes of wrappers."""
        parent, _, part = name.rpartition(".")
        at, kept = self._known.get(parent) or self._known.setdefault(parent, self._walked(parent))
        wrapped = _wrapped_name(at)
        while at is not None and wrapped not in (None, part):
            at = at._modules[str(wrapped)]  # that wrapper's hooks have removed its prefix
            wrapped = _wrapped_name(at)
        if wrapped is None:
            kept = f"{kept}.{part}" if kept else part
        return None if at is None else at._modules.get(part), kept


def _wrapped_name(module: nn.Module | None) -> str | None:
    """The name of the child that is wrapped; None for a module that is no wrapper."""
    if module is None:
        return None
    # A wrapper has one child and nothing else; a model may have a child of that name beside others.
    if len(module._modules) == 1 and not module._parameters and not module._buffers:
        (name,) = module._modules
        if name in _PRIVATE:
            return name
    if "module" not in module._modules:
        return None
    if isinstance(module, (_PARALLEL, nn.DataParallel)):
        return "module"
    kinds = ((kind.__module__.partition(".")[0], kind.__name__) for kind in type(module).__mro__)
    return None if _OTHERS.isdisjoint(kinds) else "module"


def names_of_now(stored: Iterable[str], live: Iterable[str]) -> dict[str, str]:
    """The canonical names of stored names that have a wrapper's prefix, and are not live.

    Version 0.1 stored the prefixes of wrappers that it did not know. A name stays as it is if the
    one without prefixes is not live, or is stored as well.
    """
    names, wanted = set(stored), set(live)
    # A model may have a child called "module": it is a wrapper only if all else is inside it.
    inside = all(name.startswith("module.") for name in names)
    dropped = {*_PRIVATE, "module"} if inside else set(_PRIVATE)
    renamed: dict[str, str] = {}
    for name in sorted(names - wanted):
        short = ".".join(part for part in name.split(".") if part not in dropped)
        if short in wanted and short not in names and short not in renamed.values():
            renamed[name] = short
    return renamed


# Versions


def live_versions(state: object, canonical: Callable[[str], str]) -> Versions | None:
    """The versions beside a state_dict(); None if it has none."""
    metadata = getattr(state, "_metadata", None)
    if not isinstance(metadata, Mapping):
        return None
    # The module within a wrapper comes after it, and has the same canonical name.
    found = {canonical(name): local.get("version") for name, local in metadata.items()}
    return {name: version for name, version in found.items() if type(version) is int}


def stored_versions(node: Node) -> Versions | None:
    """The versions of all modules with stored values; None if the checkpoint has no versions."""
    if "versions" not in node:
        return None
    found = {"": 1}
    for name in node["v"]:
        outer = name.rpartition(".")[0]
        while outer not in found:
            found[outer] = 1
            outer = outer.rpartition(".")[0]
    return found | {str(name): int(version) for name, version in node["versions"]}


def are_other(stored: Versions, live: Versions, names: Iterable[str]) -> bool:
    """Whether one of these modules was stored by another version of its class."""
    return any(stored.get(name, live[name]) != live[name] for name in names)


def set_versions(metadata: Any, versions: Versions, canonical: Callable[[str], str]) -> None:
    """Has loaders find `versions` in the metadata of a state; other modules keep theirs."""
    places = {canonical(name): name for name in metadata}
    for name, version in versions.items():
        place = places.get(name, name)
        metadata[place] = {**metadata.get(place, {}), "version": version}
