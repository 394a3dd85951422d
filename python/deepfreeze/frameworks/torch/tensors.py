"""Dense torch tensors: their stored form, shared memory, and filling them in place."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, TypeAlias

import torch

from deepfreeze.base.names import Owner, shown
from deepfreeze.errors import CorruptError, EncodeError
from deepfreeze.frameworks.plain_numbers import made_exactly
from deepfreeze.frameworks.torch import device as torch_device
from deepfreeze.frameworks.torch.sharded import Box, Shard, shard_of
from deepfreeze.state.contracts import Filler, Sink, Source
from deepfreeze.state.dtypes import COMPLEX, NATIVE, stored_form
from deepfreeze.state.entry import HOST, Entry, Layout, Place
from deepfreeze.state.tree import Node, tag_of

# torch can't copy every dtype that it can hold: such tensors are handled as integers.
_SURROGATES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_PLAIN = (torch.Tensor, torch.nn.Parameter)  # no DTensors
_BASE_ALIGNMENT_BYTES = 16  # of a shared base, so that views of any dtype start on an element


@cache
def dtype_name(dtype: torch.dtype) -> str:
    """The name without "torch.", as in "float32"."""
    return str(dtype).removeprefix("torch.")


def dtype_from_name(name: str) -> torch.dtype:
    """The torch dtype of that name; CorruptError if there is none."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise CorruptError(f"state tree: {name!r} is no dtype of torch {torch.__version__}")
    return dtype


def copyable(tensor: torch.Tensor) -> torch.Tensor:
    """A view of the same memory in a dtype that torch copies bit by bit."""
    name = dtype_name(tensor.dtype)
    if name in NATIVE or name in COMPLEX:
        return tensor
    return tensor.view(_SURROGATES[tensor.dtype.itemsize])


def raw_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a contiguous tensor as bytes."""
    return tensor.reshape(-1).view(torch.uint8)


def empty(name: str, shape: tuple[int, ...], size: int) -> torch.Tensor:
    """Memory for an entry, as a tensor of its dtype if torch can copy that, else of bytes."""
    dtype = getattr(torch, name, None)
    if isinstance(dtype, torch.dtype) and (name in NATIVE or name in COMPLEX):
        return torch.empty(shape, dtype=dtype, device="cpu")
    return torch.empty(size, dtype=torch.uint8, device="cpu")


def stored_box(box: Box, stored_shape: tuple[int, ...]) -> Box:
    """The box of the stored elements; dtypes stored as others have one dimension more."""
    offset, whole = box
    more = stored_shape[len(whole) :]
    return (*offset, *(0 for _ in more)), (*whole, *more)


@dataclass(slots=True)
class Pending:
    """A tensor whose node waits until all tensors that share its memory are known."""

    node: Node
    tensor: torch.Tensor
    path: str
    dense: bool  # its elements are contiguous
    low: int  # the bytes of memory that it spans
    high: int
    box: Box | None = None  # of the tensor that it is a part of

    @property
    def repeats(self) -> bool:
        """Whether some of its elements share memory with others of its own."""
        return not self.dense and repeats_elements(self.tensor)


def pending(node: Node, tensor: torch.Tensor, path: str, box: Box | None = None) -> Pending:
    """Notes the memory of `tensor`. A lazy conjugate or negation is resolved into new memory."""
    tensor = tensor.detach() if tensor.requires_grad else tensor
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    if not within_storage(tensor):
        raise EncodeError(f"{shown(path)}: the tensor's storage is smaller than the tensor")
    dense = tensor.is_contiguous()
    low = tensor.data_ptr()
    high = low + (tensor.nbytes if dense else _span(tensor) * tensor.element_size())
    return Pending(node, tensor, path, dense, low, high, box)


def within_storage(tensor: torch.Tensor) -> bool:
    """Whether its storage still holds all its elements: storages can be resized, even to 0."""
    count = _span(tensor)
    end = (tensor.storage_offset() + count) * tensor.element_size()
    return not count or end <= tensor.untyped_storage().nbytes()


def ordinal_of(tensor: torch.Tensor) -> int | None:
    """HOST, or the device that the engine reads its memory from; None if it can't read it."""
    return HOST if tensor.is_cpu else torch_device.ordinal_of(tensor)


def is_special(tensor: torch.Tensor) -> bool:
    """Whether a tensor has no plain strided memory."""
    return tensor.layout is not torch.strided or tensor.is_quantized


def layout_of(tensor: torch.Tensor) -> Layout:
    """The layout of the tensor's elements, in bytes."""
    item = tensor.element_size()
    return Layout(tuple(tensor.shape), tuple([step * item for step in tensor.stride()]), item)


def _span(tensor: torch.Tensor) -> int:
    """The number of elements from the first to the last that a tensor uses."""
    if tensor.numel() == 0 or tensor.is_contiguous():
        return tensor.numel()
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((size - 1) * stride for size, stride in sizes)


def repeats_elements(tensor: torch.Tensor) -> bool:
    """Whether some elements share memory with others of the same tensor, as after expand()."""
    count = tensor.numel()
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return _span(tensor) < count or (count > 0 and any(s > 1 and not step for s, step in sizes))


def store_all(waiting: list[Pending], capture: Sink) -> None:
    """Adds the entries of all tensors in the walk's order; shared memory is stored once."""
    groups = _sharing(waiting)
    for item in waiting:
        group = groups.pop(id(item), None)
        if group is not None:
            _store_group(group, capture)


def _sharing(waiting: list[Pending]) -> dict[int, list[Pending]]:
    """Tensors grouped by overlapping memory; each group under its first member in walk order."""
    by_device: dict[torch.device, list[tuple[int, Pending]]] = {}
    for place in enumerate(waiting):
        by_device.setdefault(place[1].tensor.device, []).append(place)
    groups: list[list[tuple[int, Pending]]] = []
    for places in by_device.values():
        high = 0
        for index, item in sorted(places, key=lambda place: (place[1].low, -place[1].high)):
            if groups and item.low < high and item.high > item.low:
                groups[-1].append((index, item))
                high = max(high, item.high)
            else:
                groups.append([(index, item)])
                high = item.high
    return {id(min(group)[1]): [item for _, item in sorted(group)] for group in groups}


def _store_group(group: list[Pending], capture: Sink) -> None:
    first = group[0]
    same = len(group) == 1 or len({(*_geometry(item.tensor), item.box) for item in group}) == 1
    if not same and any(item.box for item in group):
        _store_apart(group, capture)
        return
    if not same or first.repeats:
        _store_shared(group, capture)
        return
    key = _store(first.tensor, first.path, capture, box=first.box)
    for item in group:
        item.node["k"] = key


def _geometry(tensor: torch.Tensor) -> tuple[object, ...]:
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()


def _store_shared(group: list[Pending], capture: Sink) -> None:
    """Stores the memory once, as its widest tensor or as plain elements; others are views of it."""
    low = min(item.low for item in group)
    high = max(item.high for item in group)
    dtypes = {item.tensor.dtype for item in group}
    whole = [item for item in group if item.dense and (item.low, item.high) == (low, high)]
    if whole and len(dtypes) == 1:
        key = whole[0].node["k"] = _store(whole[0].tensor, whole[0].path, capture)
        group = [item for item in group if item is not whole[0]]
    else:
        base = _elements_between(group, low, high, mixed=len(dtypes) > 1)
        if base is None or any(
            (item.low - base.data_ptr()) % item.tensor.element_size() for item in group
        ):
            _store_apart(group, capture)
            return
        low = base.data_ptr()
        owners = [item.tensor for item in group]
        key = _store(base, group[0].path + ".storage", capture, owners)
    for item in group:
        item.node["k"] = key
        item.node["view"] = _view_node(item.tensor, item.low - low)


def _store_apart(group: list[Pending], capture: Sink) -> None:
    for item in group:
        item.node["k"] = _store(item.tensor, item.path, capture, box=item.box)


def _elements_between(
    group: list[Pending], low: int, high: int, *, mixed: bool
) -> torch.Tensor | None:
    """The memory that a group spans; None if it is not in one piece."""
    for item in group:
        storage = item.tensor.untyped_storage()
        start = low - storage.data_ptr()
        if start < 0 or high > storage.data_ptr() + storage.nbytes():
            continue
        start -= start % _BASE_ALIGNMENT_BYTES if mixed else 0
        size = high - storage.data_ptr() - start
        data = torch.empty(0, dtype=torch.uint8, device=item.tensor.device)
        data.set_(storage, start, (size,), (1,))
        return data if mixed else data.view(item.tensor.dtype)
    if group[0].tensor.device.type != "cpu":
        return None
    # Storages overlap, as those of slices of one NumPy array do. All memory between is theirs.
    memory = (ctypes.c_uint8 * (high - low)).from_address(low)
    return torch.frombuffer(memory, dtype=torch.uint8)


def _view_node(tensor: torch.Tensor, offset_bytes: int) -> Node:
    return {
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
        "offset": offset_bytes // tensor.element_size(),
        "dtype": dtype_name(tensor.dtype),
    }


def _store(
    tensor: torch.Tensor,
    path: str,
    capture: Sink,
    more_owners: Iterable[object] = (),
    box: Box | None = None,
) -> str:
    """Adds an entry; copies a tensor that isn't contiguous, or that the engine can't reach."""
    key, owner = capture.keys.take_owned(path)
    entry, placed = entry_of(tensor, key, box)
    entry.is_anothers = owner is Owner.ANOTHER
    # Keeps the storage too: a tensor may be given another one while its bytes are copied.
    capture.add(entry, [placed, placed.untyped_storage(), *more_owners], (tensor,))
    return key


def entry_of(tensor: torch.Tensor, key: str, box: Box | None = None) -> tuple[Entry, torch.Tensor]:
    """The entry of a dense tensor, and the tensor that it points into: that one or a host copy.

    The tensor is as pending() gives it. `box` places it in the tensor that it is a part of.
    """
    ordinal = ordinal_of(tensor) if tensor.is_contiguous() else None
    placed = tensor if ordinal is not None else host_copy(tensor)
    name, shape, logical = dtype_name(tensor.dtype), tuple(tensor.shape), ""
    dtype = NATIVE.get(name)
    if dtype is None:
        dtype, shape, logical = stored_form(name, shape, tensor.element_size())
    entry = Entry(key, dtype, shape, logical, placed.data_ptr(), tensor.nbytes)
    entry.device = HOST if ordinal is None else ordinal
    if box is not None:
        entry.box = stored_box(box, shape)
    return entry, placed


def host_copy(tensor: torch.Tensor) -> torch.Tensor:
    """The elements, contiguous in host memory."""
    return copyable(tensor).cpu().contiguous()


def form_of(node: Node, plan: Filler) -> tuple[str, tuple[int, ...]]:
    """Dtype and shape of a stored tensor."""
    view = node.get("view")
    if view is None:
        return plan.form_of(node["k"])
    return str(view["dtype"]), tuple(view["shape"])


def same_tensor(node: Node, live: torch.Tensor, path: str, plan: Filler) -> bool:
    """Whether stored and live dtype and shape are equal; if not, notes the mismatch."""
    stored, wanted = form_of(node, plan), (dtype_name(live.dtype), tuple(live.shape))
    return stored == wanted or plan.same_form(path, stored, wanted)


Fill: TypeAlias = tuple[Node, torch.Tensor, str]  # a stored tensor, a live one, and its name


def fill(node: Node, live: torch.Tensor, path: str, plan: Filler) -> None:
    """Plans to fill a dense live tensor from a stored one of the same dtype and shape."""
    place = _place_of(node, live, path, plan) if same_tensor(node, live, path, plan) else None
    if place is not None:
        plan.fill(node["k"], place)


def fill_alike(fills: Sequence[Fill], plan: Filler) -> list[Fill]:
    """Plans to fill the dense live tensors that have a stored tensor's form; returns the others."""
    others = [each for each in fills if tag_of(each[0]) != "tensor"]
    stored = [each for each in fills if tag_of(each[0]) == "tensor"]
    forms = plan.forms_of([node["k"] for node, _, _ in stored])
    places: list[tuple[str, Place]] = []
    for (node, live, path), whole in zip(stored, forms, strict=True):
        view = node.get("view")
        form = whole if view is None else (str(view["dtype"]), tuple(view["shape"]))
        if is_special(live) or form != (dtype_name(live.dtype), tuple(live.shape)):
            others.append((node, live, path))
            continue
        place = _place_of(node, live, path, plan)
        if place is not None:
            places.append((node["k"], place))
    plan.fill_all(places)
    return others


def _place_of(node: Node, live: torch.Tensor, path: str, plan: Filler) -> Place | None:
    """The place of a live tensor; None, with a note, if the stored one can't fill it."""
    shard = None if type(live) in _PLAIN else shard_of(live)
    if shard is not None:
        return _place_of_shard(node, shard, path, plan)
    view, contiguous = node.get("view"), live.is_contiguous()
    alike = view is not None and tuple(view["stride"]) == live.stride()
    if not contiguous and not alike and repeats_elements(live):
        plan.unfit(path, "its elements share memory, the stored ones do not")
        return None
    if not within_storage(live):
        plan.unfit(path, "the live tensor's storage is smaller than the tensor")
        return None
    live = live.detach()
    lazy = live.is_conj() or live.is_neg()
    ordinal = None if view or lazy or not contiguous else ordinal_of(live)
    layout = layout_of(live)
    whole = view is None and contiguous
    return Place(
        path=path,
        address=live.data_ptr(),
        bytes=live.numel() * live.element_size(),
        direct=ordinal is not None,
        copy=lambda: _copy_into(live, tensor_of(node, path, plan)),
        live=layout,
        stored=layout if whole else Layout.stored(view, layout.shape, layout.item_bytes),
        offset=int(view["offset"]) * live.element_size() if view else 0,
        device="cpu" if live.is_cpu else str(live.device),
        ordinal=HOST if ordinal is None else ordinal,
        stream=0 if ordinal in (None, HOST) else torch_device.stream_of(ordinal),
        touch=lambda: torch.autograd.graph.increment_version(live),
    )


def write_number(node: Node, live: torch.Tensor, path: str, plan: Filler) -> None:
    """Plans to write a stored plain number, or a list, into a live tensor that holds it exactly."""

    def make(value: object) -> torch.Tensor:
        return torch.tensor(value, dtype=live.dtype)

    made = made_exactly(node, make, tuple(live.shape), path, plan)
    if made is None or live.numel() == 0:
        return
    if repeats_elements(live) or not within_storage(live):
        plan.unfit(path, "the live tensor has no memory of its own for each element")
        return
    live, layout = live.detach(), layout_of(live)
    plan.write(
        Place(
            path=path,
            address=live.data_ptr(),
            bytes=live.nbytes,
            direct=False,
            copy=lambda: live.copy_(made),
            live=layout,
            stored=layout,
            device=str(live.device),
        )
    )


def _place_of_shard(node: Node, shard: Shard, path: str, plan: Filler) -> Place | None:
    """The place of this rank's part of a tensor; if it is contiguous, no other part is read."""
    live, (offset, _) = shard.local, shard.box
    if live.numel() == 0:
        return None
    if node.get("view") is not None:
        plan.unfit(path, "stored as a view of shared memory, but live it is a part of a DTensor")
        return None
    extent = tuple(live.shape)
    ordinal = ordinal_of(live) if live.is_contiguous() else None
    return Place(
        path=path,
        address=live.data_ptr(),
        bytes=live.numel() * live.element_size(),
        direct=ordinal is not None,
        copy=lambda: _copy_into(live, tensor_of(node, path, plan)[_slices(offset, extent)]),
        device=str(live.device),
        ordinal=HOST if ordinal is None else ordinal,
        stream=0 if ordinal in (None, HOST) else torch_device.stream_of(ordinal),
        box=(offset, extent),
        touch=lambda: torch.autograd.graph.increment_version(live),
    )


def _slices(offset: tuple[int, ...], extent: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(first, first + size) for first, size in zip(offset, extent, strict=True))


def _copy_into(live: torch.Tensor, value: torch.Tensor) -> None:
    if repeats_elements(live):  # then both have the same layout
        once = tuple(slice(None) if step else slice(1) for step in live.stride())
        live, value = live[once], value[once]
    if repeats_elements(live):
        count = _span(live)
        live, value = (tensor.as_strided((count,), (1,)) for tensor in (live, value))
    with torch.no_grad():
        if live.is_conj() or live.is_neg():
            live.copy_(value)
        else:
            copyable(live).copy_(copyable(value))


def tensor_of(node: Node, path: str, plan: Source) -> torch.Tensor:
    """The stored tensor, as a view of the buffer that its entry was read into."""
    base: torch.Tensor = plan.buffer_of(node["k"]).tensor
    view = node.get("view")
    if view is None:
        name, shape = plan.form_of(node["k"])
        dtype = dtype_from_name(name)
        return base if base.dtype == dtype else _retyped(base, dtype, shape)
    return _strided(raw_bytes(base), view, path)


def _retyped(data: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    if data.nbytes != prod(shape) * dtype.itemsize:
        raise CorruptError(f"state tree: {data.nbytes} bytes are no {dtype_name(dtype)}{shape}")
    return data.view(dtype).view(shape)


def _strided(data: torch.Tensor, view: dict[str, Any], path: str) -> torch.Tensor:
    dtype = dtype_from_name(view["dtype"])
    whole = data.numel() // dtype.itemsize
    elements = data[: whole * dtype.itemsize].view(dtype)
    shape = [int(size) for size in view["shape"]]
    stride = [int(step) for step in view["stride"]]
    offset = int(view["offset"])
    last = offset + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
    if min([offset, *shape, *stride]) < 0 or (0 not in shape and last >= whole):
        raise CorruptError(f"state tree at {shown(path)}: a view beyond its entry")
    return elements.as_strided(shape, stride, offset)
