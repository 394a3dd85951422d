"""Tensor subclasses that the program has registered: filled in place if their parts can be."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from deepfreeze.base.names import join
from deepfreeze.frameworks.torch.sharded import is_sharded
from deepfreeze.frameworks.torch.tensors import dtype_name, fill, is_special
from deepfreeze.state.contracts import Filler, Remake
from deepfreeze.state.kinds import MAPPINGS
from deepfreeze.state.registry import REGISTERED, RegisteredType
from deepfreeze.state.tree import Node, is_plain, mapping_pairs, sequence_items, tag_of


def is_unknown_wrapper(tensor: torch.Tensor) -> bool:
    """Whether it is a subclass without memory of its own that nobody has registered."""
    return (
        type(tensor) not in (torch.Tensor, torch.nn.Parameter)
        and is_traceable_wrapper_subclass(tensor)
        and not is_sharded(tensor)
        and type(tensor) not in REGISTERED
    )


def match_registered(
    node: Node, live: torch.Tensor, known: RegisteredType, path: str, plan: Filler
) -> Remake:
    """Plans how a live tensor of a registered type takes a stored value.

    It is filled in place if to_tree gives the tensors that it consists of, and the stored value
    differs in these alone: optimizers and modules know a parameter by its identity. Otherwise
    from_tree makes a new one.
    """
    if tag_of(node) != "ext" or node["t"] != known.name:
        plan.mismatch(path, node, f"a {type(live).__qualname__}")
        return None
    parts = _Parts(plan)
    # Called twice: a tensor that is a copy is another object the second time.
    parts.add(node["v"], known.to_tree(live), known.to_tree(live), path)
    if parts.unlike:
        plan.unfit(*parts.unlike)
        return None
    if parts.others and known.is_flattened:
        plan.unfit(path, f"its {type(live).__qualname__} differs in values beside the tensors")
        return None
    if parts.others or not parts.tensors:
        return plan.fresh(node, path)
    for part, tensor, place in parts.tensors:
        fill(part, tensor, place, plan)
    return None


class _Parts:
    """The parts of a live value, compared with the stored ones."""

    def __init__(self, plan: Filler) -> None:
        self.tensors: list[tuple[Node, torch.Tensor, str]] = []  # may be filled
        self.unlike: tuple[str, str] | None = None  # a tensor of another form, and why
        self.others = False  # whether something else differs, or is a copy
        self._plan = plan

    def add(self, node: Node, live: Any, again: Any, path: str) -> None:
        """Compares one part, as to_tree has given it the first and the second time."""
        if type(live) is torch.Tensor and not is_special(live) and not is_sharded(live):
            self._add_tensor(node, live, again, path)
        elif isinstance(live, torch.Tensor) or not is_plain(node):
            self._add_parts(node, live, again, path)
        else:
            stored = self._plan.decoder.decode(node, path)
            self.others |= type(stored) is not type(live) or stored != live

    def _add_tensor(self, node: Node, live: torch.Tensor, again: Any, path: str) -> None:
        form = self._plan.form_in(node)
        if form != (dtype_name(live.dtype), tuple(live.shape)):
            stored, here = self._plan.text_of(node), f"{dtype_name(live.dtype)}{list(live.shape)}"
            self.unlike = self.unlike or (path, f"stored {stored}, live {here}")
        self.others |= live.data_ptr() != again.data_ptr()
        self.tensors.append((node, live, path))

    def _add_parts(self, node: Node, live: Any, again: Any, path: str) -> None:
        pairs = mapping_pairs(node) if type(live) in MAPPINGS else None
        items = sequence_items(node, type(live)) if type(live) in (list, tuple) else None
        if pairs is not None and [key for key, _ in pairs] == [*live]:
            for key, each in pairs:
                self.add(each, live[key], again[key], join(path, key))
        elif items is not None and len(items) == len(live):
            for index, each in enumerate(items):
                self.add(each, live[index], again[index], join(path, index))
        else:
            self.others = True
