"""Objects with state_dict and load_state_dict: schedulers, scalers, loaders, samplers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from deepfreeze.adapters.base import Remake
from deepfreeze.errors import EncodeError
from deepfreeze.names import Owner, shown
from deepfreeze.tree import Node, tag_of

if TYPE_CHECKING:
    from deepfreeze.capture import Capture
    from deepfreeze.plan import Plan


def is_stateful(value: object) -> bool:
    """Whether `value` saves and restores itself by the usual pair of methods."""
    if isinstance(value, type):
        return False
    return callable(getattr(value, "state_dict", None)) and callable(
        getattr(value, "load_state_dict", None)
    )


def is_loader(value: object) -> bool:
    """Whether it is known to give each rank other data."""
    return type(value).__module__.partition(".")[0] == "torchdata"


class StatefulAdapter:
    """Takes what the object itself gives, and gives it back whole."""

    def claims(self, value: object) -> bool:
        return is_stateful(value)

    def encode(self, value: Any, path: str, capture: Capture) -> Node:
        capture.refuse_inside(value, path)
        if is_loader(value):
            capture.keys.own(path, Owner.EACH)
        return object_node("stateful", call_state_dict(value, path), path, capture)

    def direct(self, capture: Capture) -> Mapping[type, Callable[[Any, str], Node]]:
        return {}

    def recall(self, mapping: dict[Any, Any], path: str) -> Node | None:
        return None

    def note(self, mapping: dict[Any, Any], path: str, node: Node) -> None:
        pass

    def finish(self, capture: Capture) -> None:
        """Nothing waits."""

    def match(self, node: Node, live: Any, path: str, plan: Plan) -> Remake:
        if not plan.keys.wants_whole(path):
            return None
        if tag_of(node) != "object" or node["t"] != "stateful":
            plan.mismatch(path, node, f"a {type(live).__qualname__}")
            return None
        if node["v"] == {} and _refuses_empty(live):
            plan.mismatch(path, node, "a GradScaler that is enabled; the stored one was not")
            return None
        make = plan.fresh(node["v"], path)
        plan.apply(path, lambda: live.load_state_dict(make()))
        return None

    def decodes(self, tag: str, node: Node) -> bool:
        return tag == "object"

    def decode(self, tag: str, node: Node, path: str, plan: Plan) -> object:
        return plan.decoder.decode(node["v"], path)

    def environment(self) -> dict[str, str]:
        return {}


def _refuses_empty(live: Any) -> bool:
    """Whether it is an enabled GradScaler of torch.

    A disabled one stores an empty dict, which an enabled one refuses only when it is loaded, after
    live tensors have been written.
    """
    classes = type(live).__mro__
    scaler = any(
        cls.__module__ == "torch.amp.grad_scaler" and cls.__name__ == "GradScaler"
        for cls in classes
    )
    return scaler and bool(live.is_enabled())


def object_node(kind: str, state: object, path: str, capture: Capture) -> Node:
    """The node of an object of the kind "module", "optimizer" or "stateful"."""
    return {"$": "object", "t": kind, "v": capture.encode(state, path)}


def call_state_dict(value: Any, path: str) -> object:
    """value.state_dict(), where a failure names the place in the state."""
    call: Callable[[], object] = value.state_dict
    try:
        return call()
    except Exception as cause:
        kind = type(value).__qualname__
        raise EncodeError(f"{shown(path)}: {kind}.state_dict() failed: {cause!r}") from cause
