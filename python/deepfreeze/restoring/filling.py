"""Puts restored values into the live containers in their place: other objects may hold those."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from deepfreeze.state.kinds import MAPPINGS


def put_into(live: Any, value: Any, seen: set[int]) -> Any:
    """`value`, put into the live containers in its place; each takes only one value."""
    if id(live) in seen:
        return value
    if type(live) is tuple and type(value) is tuple and len(live) == len(value):
        return tuple(put_into(one, other, seen) for one, other in zip(live, value, strict=True))
    fill = FILLS.get(type(live))
    if fill is None or _container_kind(live) != _container_kind(value):
        return value
    seen.add(id(live))
    fill(live, value, seen)
    return live


def _fill_mapping(live: dict[Any, Any], value: dict[Any, Any], seen: set[int]) -> None:
    merged = {
        key: put_into(live[key], item, seen) if key in live else item for key, item in value.items()
    }
    live.clear()
    for key, item in merged.items():  # a Counter's own update would add
        live[key] = item


def _fill_list(live: list[Any], value: list[Any], seen: set[int]) -> None:
    merged = [put_into(one, other, seen) for one, other in zip(live, value, strict=False)]
    live[:] = merged + value[len(merged) :]


def _fill_set(live: set[Any], value: set[Any], _: set[int]) -> None:
    live.clear()
    live.update(value)


def _fill_deque(live: deque[Any], value: deque[Any], _: set[int]) -> None:
    live.clear()
    live.extend(value)  # a deque keeps its own maxlen: it belongs to the program, as a shape does


def _fill_bytes(live: bytearray, value: bytearray, _: set[int]) -> None:
    live[:] = value


FILLS: dict[type, Callable[[Any, Any, set[int]], None]] = {
    **dict.fromkeys(MAPPINGS, _fill_mapping),
    list: _fill_list,
    set: _fill_set,
    deque: _fill_deque,
    bytearray: _fill_bytes,
}


def _container_kind(value: Any) -> object:
    return dict if type(value) in MAPPINGS else type(value)
