"""Modules with loaders of their own: asked to load what was stored under other names or forms.

1. find: the outermost modules whose loading is more than a copy (hooks, lazy parameters,
   _load_from_state_dict, load_state_dict of their own).
2. ask: where what was stored differs from what is live, the module's own loading gets the values,
   after they have been read and before any other memory is written.
3. judge: missing and unexpected names are those that are left after that. If they forbid the
   restore, the module gets back what it had.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from deepfreeze.adapters.base import imported
from deepfreeze.adapters.torch_names import canonical_names
from deepfreeze.adapters.torch_sharded import is_sharded
from deepfreeze.adapters.torch_special import is_special
from deepfreeze.adapters.torch_tensors import form_of
from deepfreeze.adapters.torch_versions import Versions, set_versions
from deepfreeze.errors import MismatchError
from deepfreeze.names import join, shown
from deepfreeze.registry import registered_for
from deepfreeze.tree import Node, tag_of

if TYPE_CHECKING:
    from deepfreeze.plan import Plan
    from deepfreeze.restore_plan import RestorePlan

# They only add to a copy what a layout of an older torch lacks, which nothing here has.
_COPY_ONLY = (
    nn.Module._load_from_state_dict,
    nn.modules.batchnorm._NormBase._load_from_state_dict,
    nn.modules.instancenorm._InstanceNorm._load_from_state_dict,
)


def has_own_load(module: nn.Module) -> bool:
    """Whether its class, or the object itself, replaces load_state_dict()."""
    method = getattr(module.load_state_dict, "__func__", None)
    return method is not nn.Module.load_state_dict


def loads_by_itself(module: nn.Module) -> bool:
    """Whether loading this module, or one within it, does more than copying."""
    return has_own_load(module) or any(map(_does_more, module.modules()))


def _does_more(module: nn.Module) -> bool:
    return bool(
        _hooks_that_count(module)
        or module._load_state_dict_post_hooks
        or getattr(module._load_from_state_dict, "__func__", None) not in _COPY_ONLY
    )


def _hooks_that_count(module: nn.Module) -> list[Any]:
    """Pre-hooks, without those of activation wrappers, which only put a prefix into names."""
    hooks = list(module._load_state_dict_pre_hooks.values())
    if imported("torch.distributed.algorithms._checkpoint.checkpoint_wrapper"):
        from torch.distributed.algorithms._checkpoint import checkpoint_wrapper

        prefixing = checkpoint_wrapper.ActivationWrapper._pre_load_state_dict_hook
        hooks = [hook for hook in hooks if getattr(hook, "hook", hook) is not prefixing]
    return hooks


def outermost_loaders(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The modules that load by themselves and lie in no other such, with their names."""
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


class _Left(NamedTuple):
    """What a module's loading has not put in place as it was stored."""

    missing: list[str]
    unexpected: list[str]
    cast: dict[str, str]  # by the stored name: into what


class _CastWatch(TorchFunctionMode):
    """Sees stored tensors that are copied into live ones of another dtype, under any name."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        super().__init__()
        self._names = {id(value): name for name, value in state.items()}
        self.found: dict[str, str] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.copy_ and len(args) > 1 and id(args[1]) in self._names:
            live, stored = args[:2]
            if live.dtype != stored.dtype:
                text = f"stored {_form(stored)}, the module would load it into {_form(live)}"
                self.found[self._names[id(stored)]] = text
        return func(*args, **(kwargs or {}))


class Asked:
    """One module that loads stored values by itself.

    `values`: by canonical names within the module, the functions that make them; `versions`: of
    the modules that stored them.
    """

    def __init__(
        self,
        module: nn.Module,
        path: str,
        values: Mapping[str, Callable[[], Any]],
        versions: Versions,
        *,
        is_root: bool,
    ) -> None:
        self._module = module
        self._path = path
        self._values = values
        self._versions = versions
        # torch itself calls load_state_dict() of the outermost module alone.
        self._own = is_root and has_own_load(module)

    def ask(self, plan: RestorePlan) -> Callable[[], None]:
        """Has the module load; the function that is returned takes it back.

        MismatchError, with the module as it was, if strict and something is left or refused.
        """
        before = _Before(self._module)
        state = self._state()
        try:
            left = self._load(state, strict=plan.strict)
        except Exception as cause:
            before.put_back()
            if plan.strict:
                raise MismatchError(f"{shown(self._path)}: {self._reason(cause)}") from cause
            return self._ask_for_the_rest(state, before, plan, cause)
        return self._judged(left, before, plan)

    def _state(self) -> OrderedDict[str, Any]:
        """What was stored, under the names that the module has now for the same."""
        canonical = canonical_names(self._module)
        live = nn.Module.state_dict(self._module)
        names = {canonical(name): name for name in live}
        state = OrderedDict((names.get(name, name), make()) for name, make in self._values.items())
        metadata = live._metadata  # type: ignore[attr-defined]  # torch sets it
        set_versions(metadata, self._versions, canonical)
        vars(state)["_metadata"] = metadata
        return state

    def _load(self, state: Mapping[str, Any], *, strict: bool) -> _Left:
        with _CastWatch(state) as watch:
            if self._own:
                result: Any = _own_load(self._module, state, strict=strict)
            else:
                result = nn.Module.load_state_dict(self._module, state, strict=False)
        missing = getattr(result, "missing_keys", None) or ()
        unexpected = getattr(result, "unexpected_keys", None) or ()
        return _Left(list(missing), list(unexpected), watch.found)

    def _judged(
        self,
        left: _Left,
        before: _Before,
        plan: RestorePlan,
    ) -> Callable[[], None]:
        if plan.strict and any(left):
            before.put_back()
        canonical = canonical_names(self._module)
        for name, text in left.cast.items():
            plan.unfit(join(self._path, canonical(name)), text)
        plan.missing += [join(self._path, canonical(name)) for name in left.missing]
        plan.unexpected += [join(self._path, canonical(name)) for name in left.unexpected]
        plan.check()
        return before.put_back

    def _ask_for_the_rest(
        self, state: OrderedDict[str, Any], before: _Before, plan: RestorePlan, cause: Exception
    ) -> Callable[[], None]:
        """Without strict: what has the live shape, or is of no live name, may still be taken."""
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
            return before.put_back
        reported = plan.mismatched.keys()
        missing = [name for name in left.missing if join(self._path, name) not in reported]
        left = left._replace(missing=missing)
        return self._judged(left, before, plan)

    def _reason(self, cause: Exception) -> str:
        return f"{type(self._module).__qualname__} can't load what was stored: {cause}"


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
    """Not with shards, which torch loads from shards only, nor where nothing can be taken back."""
    if any(isinstance(inner, torch.jit.ScriptModule) for inner in module.modules()):
        return False
    tensors = (*module.parameters(), *module.buffers())
    return not any(is_sharded(tensor) or tensor.is_meta for tensor in tensors)


def differs(stored: Mapping[str, Node], live: Mapping[str, object], plan: Plan) -> bool:
    """Whether a module can't simply be filled; another dtype alone would be cast by its loading."""
    if stored.keys() != live.keys():
        return True
    return any(_has_another_form(stored[name], value, plan) for name, value in live.items())


def _has_another_form(node: Node, live: object, plan: Plan) -> bool:
    if registered_for(live) is not None:
        return tag_of(node) != "ext"
    is_tensor = tag_of(node) == "tensor"
    if not isinstance(live, torch.Tensor) or is_special(live):
        return is_tensor
    if is_lazy(live) or not is_tensor:
        return True
    return form_of(node, plan)[1] != tuple(live.shape)


class _Before:
    """What a module held: its attributes, tables and the contents of its tensors."""

    def __init__(self, module: nn.Module) -> None:
        self._attributes = [(vars(inner), dict(vars(inner))) for inner in module.modules()]
        self._tables = [
            (table, dict(table))
            for inner in module.modules()
            for table in (inner._parameters, inner._buffers, inner._modules)
        ]
        tensors: list[Any] = [*module.parameters(), *module.buffers()]
        self._lazy = [(tensor, type(tensor)) for tensor in tensors if is_lazy(tensor)]
        self._contents = [(t, t.detach().clone()) for t in tensors if not is_lazy(t)]

    def put_back(self) -> None:
        """Undoes whatever the module's loading has done to it."""
        for live, before in (*self._attributes, *self._tables):
            live.clear()
            live.update(before)
        for lazy, kind in self._lazy:
            if type(lazy) is not kind:  # it has become a parameter of some shape
                lazy.data = torch.empty(0, dtype=lazy.dtype, device=lazy.device)
                lazy.__class__ = kind
        with torch.no_grad():
            for tensor, content in self._contents:
                if tensor.shape == content.shape:
                    tensor.copy_(content)
                else:
                    tensor.data = content
