"""Sparse and quantised tensors: stored as their parts, which lose nothing."""

from __future__ import annotations

from typing import Any, TypeAlias

import torch

from deepfreeze.base.names import shown
from deepfreeze.errors import EncodeError
from deepfreeze.frameworks.torch.tensors import dtype_from_name, dtype_name, form_of
from deepfreeze.state.contracts import Filler, Sink
from deepfreeze.state.tree import Node, mapping_pairs

SpecialForm: TypeAlias = tuple[str, str, tuple[int, ...]]

_COLUMN_LAYOUTS = (torch.sparse_csc, torch.sparse_bsc)
_LAYOUTS = {
    str(layout).removeprefix("torch."): layout
    for layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
}
_PER_CHANNEL = "torch.quantized_per_channel"
_PER_CHANNEL_SCHEMES = (torch.per_channel_affine, torch.per_channel_affine_float_qparams)
SPECIAL_TAGS = frozenset(
    {"torch.sparse_coo", "torch.sparse_compressed", "torch.quantized", _PER_CHANNEL}
)


def form_of_special(tensor: torch.Tensor) -> SpecialForm:
    """The tensor's kind, dtype and shape."""
    kind = "quantized" if tensor.is_quantized else str(tensor.layout).removeprefix("torch.")
    return kind, dtype_name(tensor.dtype), tuple(tensor.shape)


def stored_form_of_special(node: Node, plan: Filler) -> SpecialForm:
    """The stored tensor's kind, dtype and shape."""
    parts = dict(mapping_pairs(node["v"]) or [])
    if node["t"] in ("torch.quantized", _PER_CHANNEL):
        return "quantized", parts["dtype"], form_of(parts["integers"], plan)[1]
    dtype, _ = form_of(parts["values"], plan)
    return parts.get("layout", "sparse_coo"), dtype, tuple(parts["size"])


def encode_special(tensor: torch.Tensor, path: str, capture: Sink) -> Node:
    """The node of such a tensor; EncodeError if its kind can't be stored."""
    tensor = tensor.detach()
    if tensor.layout == torch.sparse_coo:
        name, parts = "torch.sparse_coo", _coo_parts(tensor)
    elif tensor.layout in _LAYOUTS.values():
        name, parts = "torch.sparse_compressed", _compressed_parts(tensor)
    elif tensor.is_quantized and tensor.qscheme() == torch.per_tensor_affine:
        name, parts = "torch.quantized", _quantized_parts(tensor)
    elif tensor.is_quantized and _is_per_channel(tensor):
        name, parts = _PER_CHANNEL, _per_channel_parts(tensor)
    else:
        kind = tensor.qscheme() if tensor.is_quantized else tensor.layout
        raise EncodeError(f"{shown(path)}: a tensor of {kind} can't be stored")
    return {"$": "ext", "t": name, "v": capture.encode(parts, path)}


def _is_per_channel(tensor: torch.Tensor) -> bool:
    # In other dtypes several elements share a byte.
    plain = (torch.quint8, torch.qint8, torch.qint32)
    return tensor.dtype in plain and tensor.qscheme() in _PER_CHANNEL_SCHEMES


def decode_special(name: str, parts: dict[str, Any]) -> torch.Tensor:
    """The tensor that consists of these decoded parts."""
    if name == "torch.sparse_coo":
        return torch.sparse_coo_tensor(
            parts["indices"],
            parts["values"],
            parts["size"],
            is_coalesced=parts["coalesced"],
            check_invariants=True,
        )
    if name == "torch.sparse_compressed":
        return torch.sparse_compressed_tensor(
            parts["compressed"],
            parts["plain"],
            parts["values"],
            parts["size"],
            layout=_LAYOUTS[parts["layout"]],
            check_invariants=True,
        )
    integers: torch.Tensor = parts["integers"]
    dtype_from_name(parts["dtype"])
    if name == _PER_CHANNEL:  # its scheme is float_qparams if its zero points are floats
        return torch._make_per_channel_quantized_tensor(
            integers, parts["scales"], parts["zero_points"], parts["axis"]
        )
    return torch._make_per_tensor_quantized_tensor(integers, parts["scale"], parts["zero_point"])


def _coo_parts(tensor: torch.Tensor) -> dict[str, object]:
    return {
        "indices": tensor._indices(),
        "values": tensor._values(),
        "size": list(tensor.shape),
        "coalesced": tensor.is_coalesced(),
    }


def _compressed_parts(tensor: torch.Tensor) -> dict[str, object]:
    by_column = tensor.layout in _COLUMN_LAYOUTS
    return {
        "compressed": tensor.ccol_indices() if by_column else tensor.crow_indices(),
        "plain": tensor.row_indices() if by_column else tensor.col_indices(),
        "values": tensor.values(),
        "size": list(tensor.shape),
        "layout": str(tensor.layout).removeprefix("torch."),
    }


def _quantized_parts(tensor: torch.Tensor) -> dict[str, object]:
    return {
        "integers": tensor.int_repr(),
        "scale": tensor.q_scale(),
        "zero_point": tensor.q_zero_point(),
        "dtype": dtype_name(tensor.dtype),
    }


def _per_channel_parts(tensor: torch.Tensor) -> dict[str, object]:
    return {
        "integers": tensor.int_repr(),
        "scales": tensor.q_per_channel_scales(),
        "zero_points": tensor.q_per_channel_zero_points(),
        "axis": tensor.q_per_channel_axis(),
        "dtype": dtype_name(tensor.dtype),
    }
