"""Checks that live memory shared by several places is filled from shared stored elements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from deepfreeze.state.entry import Layout, Place

if TYPE_CHECKING:
    from numpy.typing import NDArray

_OVERLAP_WORK_MAX = 10_000  # candidates tried before two places count as overlapping

_Keyed: TypeAlias = tuple[str, Place]  # an entry's key, and the place that it fills


def sharing_conflicts(places: dict[str, list[Place]]) -> list[tuple[Place, Place]]:
    """Pairs of places that share memory, but whose stored elements are not shared likewise."""
    conflicts = list(_unlike_twins(places))
    for group in _overlapping(places):
        if len({_origin(*item) for item in group}) > 1:
            conflicts += _conflicts_in(group)
    return conflicts


def _unlike_twins(places: dict[str, list[Place]]) -> Iterator[tuple[Place, Place]]:
    """Checks places without a layout: the same memory must be stored under one key."""
    seen: dict[tuple[str, int, int], _Keyed] = {}
    for key, filled in places.items():
        for place in filled:
            if place.live is not None or place.bytes == 0:
                continue
            other_key, other = seen.setdefault(
                (place.device, place.address, place.bytes), (key, place)
            )
            if other_key != key:
                yield place, other


def _overlapping(places: dict[str, list[Place]]) -> Iterator[list[_Keyed]]:
    """Groups of places whose spans of memory overlap."""
    by_device: dict[str, list[_Keyed]] = defaultdict(list)
    for key, filled in places.items():
        for place in filled:
            if place.live is not None and place.live.span:
                by_device[place.device].append((key, place))
    for items in by_device.values():
        items.sort(key=lambda item: item[1].address)
        group: list[_Keyed] = []
        high = 0
        for item in items:
            if group and item[1].address >= high:
                yield group
                group = []
            group.append(item)
            high = max(high, item[1].address + _span(item[1].live))
        if group:
            yield group


def _span(layout: Layout | None) -> int:
    return layout.span if layout is not None else 0


def _origin(key: str, place: Place) -> Hashable:
    """Equal for two places if equal live addresses mean equal stored bytes."""
    live, stored = place.live, place.stored
    if live is None or stored is None or live.walks_like(stored):
        return key, place.address - place.offset
    return key, place.address - place.offset, live, stored


def _conflicts_in(group: list[_Keyed]) -> Iterator[tuple[Place, Place]]:
    """One pair for each place that overlaps an earlier one of another origin."""
    for index, (key, place) in enumerate(group):
        origin = _origin(key, place)
        for other_key, other in group[:index]:
            if _origin(other_key, other) != origin and _overlap(place, other):
                yield place, other
                break


def _overlap(one: Place, other: Place) -> bool:
    """Whether some element of one lies in an element of the other."""
    import numpy as np

    work: Any = _OVERLAP_WORK_MAX  # NumPy takes any int, its stubs do not
    return np.may_share_memory(_at(one), _at(other), max_work=work)


def _at(place: Place) -> NDArray[Any]:
    """An array at a place's address; nothing reads its elements."""
    import numpy as np

    live = place.live
    assert live is not None
    interface = {
        "version": 3, "typestr": f"|V{live.item_bytes}", "shape": live.shape,
        "strides": live.strides, "data": (place.address, True),
    }  # fmt: skip
    return np.asarray(type("_At", (), {"__array_interface__": interface})())
