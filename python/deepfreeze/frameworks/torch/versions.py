"""Versions of modules, by which a loader recognises the layout of an older version of its class.

torch keeps them beside a state_dict(), in its attribute `_metadata`. All but 1 are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from deepfreeze.state.tree import Node

Versions = dict[str, int]  # by the canonical name of the module


def live_versions(state: object, canonical: Callable[[str], str]) -> Versions | None:
    """The versions beside a state_dict(); None if it has none."""
    metadata = getattr(state, "_metadata", None)
    if not isinstance(metadata, Mapping):
        return None
    # The module within a wrapper comes after it, and has the same canonical name.
    found = {canonical(name): local.get("version") for name, local in metadata.items()}
    return {name: version for name, version in found.items() if type(version) is int}


def versions_node(versions: Versions) -> Node:
    """The stored form of the versions."""
    return [[name, version] for name, version in versions.items() if version != 1]


def stored_versions(node: Node) -> Versions | None:
    """The versions of all modules with stored values; None if the checkpoint has no versions."""
    if "versions" not in node:
        return None
    found = {"": 1}
    for name in node["v"]:
        outer = name.rpartition(".")[0]
        while outer not in found:
            found[outer] = 1
            outer = outer.rpartition(".")[0]
    return found | {str(name): int(version) for name, version in node["versions"]}


def are_other(stored: Versions, live: Versions, names: Iterable[str]) -> bool:
    """Whether one of these modules was stored by another version of its class."""
    return any(stored.get(name, live[name]) != live[name] for name in names)


def set_versions(metadata: Any, versions: Versions, canonical: Callable[[str], str]) -> None:
    """Has loaders find `versions` in the metadata of a state; other modules keep theirs."""
    places = {canonical(name): name for name in metadata}
    for name, version in versions.items():
        place = places.get(name, name)
        metadata[place] = {**metadata.get(place, {}), "version": version}
