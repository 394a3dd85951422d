"""Canonical names of parameters: those of the model itself, without the wrappers around it.

torch.distributed.checkpoint.state_dict has the same names. With them a wrapper may come or go
between save and restore. Data-parallel, compile, activation and FSDP wrappers put a prefix into the
names of a module; some of them take it out of state_dict() again by hooks of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import nn

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
    parallel = isinstance(module, (nn.parallel.DistributedDataParallel, nn.DataParallel))
    return "module" if parallel or _is_of_others(module) else None


def _is_of_others(module: nn.Module) -> bool:
    if "module" not in module._modules:
        return False
    kinds = ((kind.__module__.partition(".")[0], kind.__name__) for kind in type(module).__mro__)
    return not _OTHERS.isdisjoint(kinds)


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
