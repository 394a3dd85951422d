"""The part of one rank in a save through torch.distributed.checkpoint.

Its tensors are entries, whole ones or boxes. The rest is the state tree of a dict:

    dcp      the version of this layout
        planner  the planner's own data, to be given back: usually names' paths in the nested state
        objects  values by name, as any state stores them
        pickled  by name, the bytes that the planner made of values that can't be stored otherwise
        tensors  the entry of each name
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import WriteResult
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from deepfreeze.base.names import KeyTable, component
from deepfreeze.errors import EncodeError, MismatchError
from deepfreeze.frameworks.torch.sharded import Box
from deepfreeze.frameworks.torch.tensors import entry_of, is_special, pending
from deepfreeze.saving.capture import Capture, walk
from deepfreeze.state.encoder import dumps
from deepfreeze.state.entry import Entry
from deepfreeze.state.per_rank import per_rank
from deepfreeze.state.tree import Node, has_objects, loads

LAYOUT = 1


@dataclass
class Content:
    """A rank's part of a save. Its entries point into live memory, which `owners` keep alive."""

    text: str  # of the tree
    entries: list[Entry]
    owners: list[object]
    results: list[WriteResult]  # of all items of the plan


def content_of(plan: SavePlan, planner: SavePlanner, rank: int) -> Content:
    """The present values of the plan's items. EncodeError names an item that can't be stored."""
    items = {item.index.fqn: item for item in plan.items if item.type == WriteItemType.BYTE_IO}
    capture = _objects(items, planner, plan.planner_data, rank)
    tree = loads(capture.text)
    parts = [item for item in plan.items if item.type != WriteItemType.BYTE_IO]
    tensors = _Tensors(parts, planner)
    tree["tensors"] = {"$": "dict", "v": tensors.nodes}
    results = [WriteResult(item.index, tensors.bytes.get(id(item), 0), None) for item in plan.items]
    entries = [*capture.entries, *tensors.entries]
    return Content(dumps(tree), entries, [capture, *tensors.owners], results)


class _Tensors:
    def __init__(self, items: Iterable[WriteItem], planner: SavePlanner) -> None:
        self.entries: list[Entry] = []
        self.owners: list[object] = []
        self.nodes: list[Node] = []  # pairs of a name and its tensor's node
        self.bytes: dict[int, int] = {}  # by the id of an item
        self._keys = KeyTable(None)
        self._names: set[str] = set()
        for item in items:
            self._add(item, planner)

    def _add(self, item: WriteItem, planner: SavePlanner) -> None:
        name = item.index.fqn
        tensor = _resolved(item, planner)
        self.bytes[id(item)] = tensor.nbytes
        if name in self._names:
            raise EncodeError(f"{name}: this rank has several parts of it, but can store only one")
        self._names.add(name)
        key = self._keys.take(component(name))
        entry, host = entry_of(tensor, key, _box_of(item, tensor))
        self.entries.append(entry)
        self.owners += [host, host.untyped_storage()]
        self.nodes.append([name, {"$": "tensor", "k": key}])


def _resolved(item: WriteItem, planner: SavePlanner) -> torch.Tensor:
    """The planner's tensor for the item; EncodeError unless it is dense."""
    name = item.index.fqn
    tensor = planner.resolve_data(item)
    if not isinstance(tensor, torch.Tensor):
        raise EncodeError(f"{name}: the planner has a {type(tensor).__qualname__} for a tensor")
    if is_special(tensor) or tensor.is_meta or is_traceable_wrapper_subclass(tensor):
        raise EncodeError(
            f"{name}: a {type(tensor).__qualname__} of {tensor.layout} on {tensor.device} "
            "can't be stored as a tensor's plain elements"
        )
    return pending({}, tensor, name).tensor


def _box_of(item: WriteItem, tensor: torch.Tensor) -> Box | None:
    """The part's offset, and the whole tensor's shape; None if the item is the whole tensor."""
    data = item.tensor_data
    if data is None or data.chunk is None:
        raise MismatchError(f"{item.index.fqn}: the planner does not give its place in the tensor")
    if tuple(data.chunk.sizes) != tuple(tensor.shape):
        raise MismatchError(
            f"{item.index.fqn}: planned as {list(data.chunk.sizes)}, it is {list(tensor.shape)}"
        )
    if data.chunk.sizes == data.size:
        return None
    return tuple(data.chunk.offsets), tuple(data.size)


def _objects(
    items: dict[str, WriteItem], planner: SavePlanner, planner_data: Any, rank: int
) -> Capture:
    """All that is no tensor, as far as it can be without pickle."""
    values: dict[str, Any] = {}
    if isinstance(planner, DefaultSavePlanner) and _leaves_objects_alone(type(planner)):
        values = {name: planner.lookup_object(item.index) for name, item in items.items()}
    if len(values) == len(items):
        capture = _exact(_state(planner_data, values, {}), values, rank)
        if capture is not None:
            return capture
    objects = {
        name: value for name, value in values.items() if _exact({"objects": value}, value, rank)
    }
    pickled = {
        name: _bytes_of(item, planner) for name, item in items.items() if name not in objects
    }
    return walk(_state(planner_data, objects, pickled), rank=rank)


def _state(planner_data: Any, objects: dict[str, Any], pickled: dict[str, bytes]) -> dict[str, Any]:
    return {
        "dcp": LAYOUT,
        "planner": planner_data,
        "objects": per_rank(objects),
        "pickled": per_rank(pickled),
    }


def _leaves_objects_alone(kind: type[DefaultSavePlanner]) -> bool:
    """Whether such a planner stores values unchanged; a subclass may transform them."""
    return (
        kind.resolve_data is DefaultSavePlanner.resolve_data
        and kind.transform_object is DefaultSavePlanner.transform_object
    )


def _bytes_of(item: WriteItem, planner: SavePlanner) -> bytes:
    data = planner.resolve_data(item)
    if not isinstance(data, io.BytesIO):
        kind = type(data).__qualname__
        raise EncodeError(f"{item.index.fqn}: the planner has a {kind} for an object's bytes")
    return data.getvalue()


def _exact(state: dict[str, Any], values: object, rank: int) -> Capture | None:
    """A walk over the state; None if some of its values would not come back as they are.

    An object with a state_dict() would come back as another type; a part of a DTensor needs the
    parts of other ranks.
    """
    try:
        capture = walk(state, rank=rank)
    except EncodeError:
        return None
    if has_objects(loads(capture.text)) or any(entry.box for entry in capture.entries):
        return None
    return None if capture.entries and any(map(_is_more, _tensors_in(values))) else capture


def _is_more(tensor: torch.Tensor) -> bool:
    """Whether it has more than its elements in host memory; only those would come back."""
    return type(tensor) is not torch.Tensor or tensor.requires_grad or not tensor.is_cpu


def _tensors_in(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from chain.from_iterable(map(_tensors_in, value.values()))
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        yield from chain.from_iterable(map(_tensors_in, value))
