"""For programs that study a run: its checkpoints in order, and a model filled from one of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from deepfreeze import _core
from deepfreeze.base.arguments import absolute
from deepfreeze.base.names import KeyFilter, join
from deepfreeze.errors import CheckpointError, make_error
from deepfreeze.frameworks.in_use.adapters import adapters_in_use
from deepfreeze.restoring.chosen import point_in
from deepfreeze.restoring.restore_plan import RestorePlan
from deepfreeze.restoring.restorer import load_tree, tree_of_all
from deepfreeze.saving.capture import paused_gc
from deepfreeze.state.tree import Node, children, tag_of

_MODULE, _OPTIMIZER = "module", "optimizer"  # kinds of objects in a tree
_NAMES_SHOWN_MAX = 10


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint of a run. Its values are read by load() alone."""

    step: int
    metrics: dict[str, float]
    tags: dict[str, str]
    path: str  # of its directory
    _info: _core.CheckpointInfo = field(repr=False)
    _keys: KeyFilter = field(repr=False)

    def load(self) -> Any:
        """The values: tensors if torch is imported, else NumPy arrays. Every block is verified.

        Raises CorruptError if it is damaged, CheckpointError if it was deleted meanwhile.
        """
        return load_tree(self._info, self._keys)


def checkpoints(run: str | os.PathLike[str], keys: Sequence[str] | None = None) -> list[Checkpoint]:
    """The checkpoints of the run's present line, the oldest first; no data is read before load().

    keys: Shell patterns on names: load() gives those values alone, for example ["model.*"].

    Steps before a fork are in the parent's run. Raises CheckpointError if `run` is no run. Any
    process may call it, also while another one trains; any thread may call load().
    """
    chosen = KeyFilter(keys)
    infos = _core.list_checkpoints(os.fspath(absolute(run)))
    line = [info for info in reversed(infos) if not info.fault and not info.abandoned]
    return [
        Checkpoint(info.step, dict(info.metrics), dict(info.tags), info.path, info, chosen)
        for info in line
    ]


def load_into(
    model: object,
    run: str | os.PathLike[str],
    step: int | str,
    *,
    module: str | None = None,
    optimizer: str | None = None,
) -> list[dict[str, Any]]:
    """Fills `model` from one checkpoint; returns the options of the optimizer that is stored there.

    model: A torch module, filled in place: parameters and buffers keep dtype, device and identity,
      and must have the stored names, shapes and dtypes. With `module`, anything that restore() can
      fill.
    step: A number, "latest", "best" or as in restore(). No other step takes its place.
    module: The name that the model had in the saved state, as "model" or "nets.generator". It is
      needed unless the checkpoint has exactly one torch module.
    optimizer: The optimizer's name there; it is needed if there are several.

    Returns a dict for each parameter group, in the optimizer's order, with its options as they
    were saved ("lr", "betas", "weight_decay", ...), without the parameters; an empty list if the
    checkpoint has no torch optimizer.

    The run is neither claimed nor written to, so another process may be training in it. Every block
    is verified. Threads may fill different models at the same time. Call fence() before you fill a
    model that a checkpointer of this program is saving.

    Raises MismatchError, with nothing modified, if the model does not fit; CorruptError if a block
    is bad, and then `state_modified` says whether the model is a mixture; CheckpointError if there
    is no such run, step or name, or if several are meant.
    """
    path = absolute(run)
    try:
        (info, *_) = point_in(os.fspath(path), step) or (None,)
        if info is None:
            raise CheckpointError("the run has no checkpoint", code="not_found")
        return _fill(model, _core.open_checkpoint(info), module, optimizer)
    except CheckpointError as cause:
        error = make_error(cause.code, f"load {path}@{step} into a model: {cause}")
        error.state_modified = cause.state_modified
        raise error from cause


def _fill(
    model: object, checkpoint: _core.OpenCheckpoint, module: str | None, optimizer: str | None
) -> list[dict[str, Any]]:
    tree = tree_of_all(checkpoint).tree
    name, node = _chosen(tree, _MODULE, module)
    groups = _groups_of(tree, optimizer)
    state = {name: model}
    plan = RestorePlan(checkpoint, KeyFilter(None), adapters_in_use(), state=state, strict=True)
    try:
        with paused_gc():
            plan.match_state({"$": "dict", "v": [[name, node]]})
            plan.check()
            options = [plan.fresh(group, join(name, place)) for place, group in enumerate(groups)]
        plan.read(verify=True)
        made = [make() for make in options]
        plan.put_in_place()
        if state[name] is not model:
            raise CheckpointError(
                f"a {type(model).__name__} can't be changed in place; give the container that "
                "holds it, and its name as module=",
                code="invalid_argument",
            )
        return made
    except CheckpointError as error:
        error.state_modified = plan.modifying
        raise
    finally:
        plan.release()


def _groups_of(tree: Node, optimizer: str | None) -> list[Node]:
    """The nodes of the options of each parameter group."""
    if optimizer is None and not any(tag == _OPTIMIZER for _, tag, _ in _objects(tree, "")):
        return []
    name, node = _chosen(tree, _OPTIMIZER, optimizer)
    if tag_of(node) != "object" or node["t"] != _OPTIMIZER:
        raise CheckpointError(
            f"{name} is no torch optimizer: optimizer= takes one of "
            f"{_listed(_names(tree, _OPTIMIZER))}",
            code="invalid_argument",
        )
    return [group["options"] for group in node["v"]["param_groups"]]


def _chosen(tree: Node, kind: str, wanted: str | None) -> tuple[str, Node]:
    """The name and node of the object that a caller means."""
    if wanted is not None:
        node = next((node for name, node in _all(tree, "") if name == wanted), None)
        if node is None:
            raise CheckpointError(
                f"nothing in it is called {wanted!r}; {_objects_text(tree)}", code="not_found"
            )
        return wanted, node
    found = [(name, node) for name, tag, node in _objects(tree, "") if tag == kind]
    if len(found) == 1:
        return found[0]
    if found:
        text = f"it has {len(found)} torch {kind}s: {_listed([name for name, _ in found])}"
    else:
        text = f"it has no torch {kind}; {_objects_text(tree)}"
    raise CheckpointError(f"{text}. Say which one by {kind}=", code="invalid_argument")


def _objects_text(tree: Node) -> str:
    return f"its objects are {_listed([name for name, _, _ in _objects(tree, '')])}"


def _names(tree: Node, kind: str) -> list[str]:
    return [name for name, tag, _ in _objects(tree, "") if tag == kind]


def _objects(node: Node, path: str) -> Iterator[tuple[str, str, Node]]:
    """Name, kind and node of each object that is within no other one."""
    if tag_of(node) == "object":
        yield path, str(node["t"]), node
        return
    for key, inner in children(node) or ():
        yield from _objects(inner, join(path, key))


def _all(node: Node, path: str) -> Iterator[tuple[str, Node]]:
    """Name and node of each value that is within no object."""
    yield path, node
    if tag_of(node) != "object":
        for key, inner in children(node) or ():
            yield from _all(inner, join(path, key))


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMES_SHOWN_MAX
    text = ", ".join(names[:_NAMES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
    return text or "none"
