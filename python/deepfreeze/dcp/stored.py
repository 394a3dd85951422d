"""A checkpoint that was saved through torch.distributed.checkpoint, opened for reading."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)

from deepfreeze import _core
from deepfreeze.base.names import KeyFilter
from deepfreeze.dcp.contents import LAYOUT
from deepfreeze.errors import CheckpointError, CorruptError
from deepfreeze.frameworks.in_use.adapters import adapters_in_use
from deepfreeze.frameworks.torch.tensors import dtype_from_name
from deepfreeze.restoring.plan import Plan
from deepfreeze.state.dtypes import Shape, logical_form
from deepfreeze.state.tree import Node, loads, mapping_pairs

Form = tuple[str, Shape]  # dtype and shape


class Stored:
    """The contents of one checkpoint by name. Opening verifies the index, reading the data.

    CorruptError if the state tree names a tensor that the data lacks; code "unsupported" if the
    checkpoint was not saved through torch.distributed.checkpoint. For one thread at a time.
    """

    def __init__(self, info: _core.CheckpointInfo) -> None:
        self.checkpoint = _core.open_checkpoint(info)
        self.info = self.checkpoint.info
        self.keys: dict[str, str] = {}  # of the entries of tensors
        self._objects: dict[str, Node] = {}
        self._pickled: dict[str, Node] = {}
        self._planner_data: list[Node] = []  # by rank
        self.specs = {spec.key: spec for spec in self.checkpoint.tensors()}
        for rank in range(info.world_size):
            self._add(rank, loads(self.checkpoint.objects(rank) or "{}"))
        self.forms = {name: self._form_of(name, key) for name, key in self.keys.items()}

    def _add(self, rank: int, tree: Node) -> None:
        if type(tree) is not dict or tree.get("dcp") != LAYOUT:
            raise CheckpointError(
                f"step {self.info.step} of rank {rank} was not saved through deepfreeze.dcp, or by "
                "a newer one; df.Checkpointer reads its own checkpoints",
                code="unsupported",
            )
        try:
            self.keys.update((name, node["k"]) for name, node in _pairs(tree["tensors"]))
            self._objects.update(_pairs(tree["objects"]))
            self._pickled.update(_pairs(tree["pickled"]))
            self._planner_data.append(tree["planner"])
        except (KeyError, TypeError, ValueError) as cause:
            raise CorruptError(f"the state tree of rank {rank}: {cause!r}") from cause

    def _form_of(self, name: str, key: str) -> Form:
        spec = self.specs.get(key)
        if spec is None:
            raise CorruptError(f"state tree: it names {key} for {name}, which the data lacks")
        return logical_form(spec.dtype, spec.shape, spec.logical_dtype)

    @cached_property
    def description(self) -> tuple[dict[str, Form], frozenset[str]]:
        """Equal for checkpoints that can replace each other: forms of tensors, and other names."""
        return self.forms, frozenset([*self._objects, *self._pickled])

    def metadata(self) -> Metadata:
        """The metadata for DCP. Each tensor is one chunk: any box of it can be read."""
        entries: dict[str, TensorStorageMetadata | BytesStorageMetadata] = {
            name: _tensor_metadata(form) for name, form in self.forms.items()
        }
        for name in (*self._objects, *self._pickled):
            entries[name] = BytesStorageMetadata()
        return Metadata(entries, planner_data=self._merged_planner_data(), storage_data={})

    def _merged_planner_data(self) -> Any:
        """Merged as by DefaultSavePlanner: of several ranks' values the first one counts."""
        found = self._read(dict(enumerate(self._planner_data)))
        given = [data for data in found.values() if data is not None]
        if not given:
            return None
        return dict(ChainMap(*given)) if all(isinstance(one, dict) for one in given) else given

    def is_pickled(self, name: str) -> bool:
        """Whether the value was stored as a pickle; this package never unpickles it."""
        return name in self._pickled

    def values(self, names: Iterable[str]) -> dict[str, Any]:
        """The values of names that are no tensors; for pickled ones their bytes."""
        nodes = {**self._objects, **self._pickled}
        return self._read({name: nodes[name] for name in names})

    def _read(self, nodes: dict[Any, Node]) -> dict[Any, Any]:
        plan = Plan(self.checkpoint, KeyFilter(None), adapters_in_use(), state=None, strict=True)
        try:
            makes = {name: plan.fresh(node, str(name)) for name, node in nodes.items()}
            plan.read(verify=True)
            return {name: make() for name, make in makes.items()}
        finally:
            plan.release()


def _pairs(node: Node) -> list[tuple[Any, Node]]:
    pairs = mapping_pairs(node)
    if pairs is None:
        raise TypeError(f"a {type(node).__name__} for a dict")
    return pairs


def _tensor_metadata(form: Form) -> TensorStorageMetadata:
    name, shape = form
    size = torch.Size(shape)
    chunk = ChunkStorageMetadata(torch.Size([0] * len(shape)), size)
    return TensorStorageMetadata(TensorProperties(dtype_from_name(name)), size, [chunk])
