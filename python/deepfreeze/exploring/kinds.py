"""Walks a state's tree: its values by their path, and the kind of state that each tensor is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

WEIGHTS, OPTIMIZER, RUNNING, OTHER = "weights", "optimizer", "forward statistics", "other"

_OBJECTS = {"module": WEIGHTS, "optimizer": OPTIMIZER}
_RUNNING = (
    "running_mean", "running_var", "num_batches_tracked", "moving_mean", "moving_variance",
    "avg_mean", "avg_var",
)  # fmt: skip
_MODEL_WORDS = ("model", "weights", "params", "module", "net", "encoder", "decoder", "ema")
_OPTIMIZER_WORDS = ("optimizer", "optim", "opt", "opt_state", "exp_avg", "momentum")
_TENSORS = ("tensor", "array", "blob")
_TEXT_MAX = 200


@dataclass(frozen=True)
class Leaf:
    """One value of the state's tree."""

    path: str
    kind: str  # of the objects around it
    key: str = ""  # of its tensor, or
    text: str = ""  # the value


def leaves_of(tree: str) -> list[Leaf]:
    """All values of a tree as a checkpoint stores it (docs/format.md)."""
    return list(_walk(json.loads(tree), "", "")) if tree else []


def _walk(node: Any, path: str, kind: str) -> Iterator[Leaf]:
    if isinstance(node, list):
        for place, value in enumerate(node):
            yield from _walk(value, _join(path, str(place)), kind)
    elif isinstance(node, dict) and "$" in node:
        yield from _walk_tagged(node, path, kind)
    elif isinstance(node, dict):
        for name, value in node.items():
            yield from _walk(value, _join(path, name), kind)
    else:
        yield Leaf(path, kind, text=_shown(node))


def _walk_tagged(node: dict[str, Any], path: str, kind: str) -> Iterator[Leaf]:
    tag, value = node["$"], node.get("v")
    if tag in _TENSORS:
        yield Leaf(path, kind, key=str(node.get("k", "")))
    elif tag == "object":
        yield from _walk(value, path, _OBJECTS.get(str(node.get("t")), kind))
    elif tag in ("dict", "odict", "counter", "defaultdict") and isinstance(value, list):
        for key, item in value:
            yield from _walk(item, _join(path, str(key)), kind)
    elif isinstance(value, (list, dict)):
        yield from _walk(value, path, kind)
    else:
        yield Leaf(path, kind, text=f"{tag} {_shown(value)}" if "v" in node else str(tag))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}... ({len(text)} characters)"


def kinds_of(tree: str, keys: list[str]) -> list[str]:
    """The kind of each tensor: by the object that holds it, otherwise by usual names."""
    known = {leaf.key: leaf.kind for leaf in leaves_of(tree) if leaf.key}
    return [_kind_of(key, known.get(key, "")) for key in keys]


def _kind_of(key: str, kind: str) -> str:
    parts = key.replace("/", ".").split(".")
    if parts[-1] in _RUNNING:
        return RUNNING
    if kind:
        return kind
    words = [part.lower() for part in parts]
    if any(word in _OPTIMIZER_WORDS for word in words):
        return OPTIMIZER
    return WEIGHTS if any(word in _MODEL_WORDS for word in words) else OTHER
