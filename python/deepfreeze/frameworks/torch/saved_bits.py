"""Checks whether an object's load_state_dict() kept the bits of stored tensors, or cast them.

torch's Optimizer.load_state_dict() casts state to the dtype of its parameter. Loaders that call it,
or do the same, round the saved values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from typing import Any

import torch

from deepfreeze.base.names import join
from deepfreeze.errors import MismatchError
from deepfreeze.frameworks.stateful import call_state_dict, is_loader
from deepfreeze.frameworks.torch.sharded import is_sharded
from deepfreeze.frameworks.torch.tensors import copyable, dtype_name, is_special, raw_bytes
from deepfreeze.state.contracts import Filler

_NARROW = (torch.bfloat16, torch.float16)


def load_exactly(live: Any, state: Any, path: str, plan: Filler) -> None:
    """Has the object load its state, and makes sure that its tensors have the saved bits."""
    if is_loader(live):  # its state_dict() starts its workers
        live.load_state_dict(state)
        return
    saved = _containers_copied(state)
    live.load_state_dict(state)
    if _holds_tensors(saved):
        _put_back(lambda: call_state_dict(live, path), saved, path, plan)


def _put_back(give: Callable[[], object], saved: object, path: str, plan: Filler) -> None:
    """Puts the saved tensors into an object that has merely cast the tensors it was given.

    `give` is its state_dict(). A tensor that can't be put there is an error, or is reported if the
    restore is not strict.
    """
    with torch.no_grad():
        for _, found, kept in _casts(give(), saved):
            _set(found, kept)
        casts = [(reduce(join, keys, path), kept) for keys, _, kept in _casts(give(), saved)]
    for place, kept in casts:
        reason = (
            f"stored {dtype_name(kept.dtype)}, which load_state_dict() of the object rounds or "
            "casts, and its state_dict() gives a copy: have it keep the dtype"
        )
        if plan.strict:
            raise MismatchError(f"{place}: {reason}")
        plan.unfit(place, reason)


def _holds_tensors(value: object) -> bool:
    """Whether there is a tensor in a restored value."""
    if isinstance(value, Mapping):
        return any(_holds_tensors(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return any(_holds_tensors(item) for item in value)
    return isinstance(value, torch.Tensor)


def _containers_copied(value: Any) -> Any:
    """The tensors in new containers: a loader may empty the containers that it is given."""
    if isinstance(value, Mapping):
        return {key: _containers_copied(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_containers_copied(item) for item in value]
    return value


def _casts(
    found: object, saved: object, keys: tuple[object, ...] = ()
) -> Iterator[tuple[tuple[object, ...], torch.Tensor, torch.Tensor]]:
    """The keys that lead to a place at which `found` has the saved tensor, but cast or rounded."""
    if isinstance(found, Mapping) and isinstance(saved, Mapping):
        for key in saved.keys() & found.keys():
            yield from _casts(found[key], saved[key], (*keys, key))
    elif isinstance(found, (list, tuple)) and isinstance(saved, (list, tuple)):
        for index, (one, other) in enumerate(zip(found, saved, strict=False)):
            yield from _casts(one, other, (*keys, index))
    elif (
        isinstance(found, torch.Tensor)
        and isinstance(saved, torch.Tensor)
        and _is_cast(found, saved)
    ):
        yield keys, found, saved


def _is_cast(found: torch.Tensor, saved: torch.Tensor) -> bool:
    if (
        found is saved
        or found.shape != saved.shape
        or any(is_special(each) for each in (found, saved))
    ):
        return False
    if is_sharded(found) or found.is_meta:
        return False
    found = found.detach().cpu()
    if found.dtype != saved.dtype:
        return _same_bits(found, saved.to(found.dtype))
    if not saved.is_floating_point() or _same_bits(found, saved):
        return False
    return any(_same_bits(found, saved.to(narrow).to(saved.dtype)) for narrow in _NARROW)


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(*(raw_bytes(copyable(each).contiguous()) for each in (one, other)))


def _set(found: torch.Tensor, saved: torch.Tensor) -> None:
    """Sets the tensor's data, because nobody knows in how many places the object has it."""
    try:
        found.data = saved.to(found.device)
    except RuntimeError:  # its dtype can't change: the second comparison will notice
        return
