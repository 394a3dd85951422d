"""python/LAYERS: which room of the package may import which, and which packages.

Imports within functions and under TYPE_CHECKING count like any other.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

from .source import Finding, Source, Tree

LAYERS = "python/LAYERS"
_ROOT = "python/deepfreeze/"
_PACKAGE = "deepfreeze"
_NATIVE = "_core"


@dataclass
class _Layers:
    """The two parts of the file: `room: rooms` and `package = places`."""

    rooms: dict[str, list[str]] = field(default_factory=dict)
    packages: dict[str, list[str]] = field(default_factory=dict)

    def room_of(self, module: str) -> str | None:
        """The longest room that a module, as a/b/c, lies in."""
        found = [room for room in self.rooms if _is_within(module, room)]
        return max(found, key=len) if found else None


def check(tree: Tree) -> Iterator[Finding]:
    text = tree.root / LAYERS
    if not text.exists():
        return
    layers = _Layers()
    yield from _read(text.read_text(), layers)
    files = {_module_of(each): each for each in tree.sources if _is_of_package(each)}
    edges: dict[str, list[tuple[str, int]]] = {module: [] for module in files}
    for module, source in files.items():
        room = layers.room_of(module)
        if room is None:
            yield Finding(source.path, 1, "layers", f"no room of {LAYERS} has this file")
            continue
        for name, line in _imported_names(source, module, files):
            target = _own_module(name, files)
            if target is None:
                yield from _check_package(source, line, module, name.split(".")[0], layers)
            elif target != _NATIVE:
                edges[module].append((target, line))
                yield from _check_room(source, line, room, layers.room_of(target), layers)
    yield from _circles(files, edges)


def _read(text: str, layers: _Layers) -> Iterator[Finding]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if "=" in line:
            package, _, places = line.partition("=")
            layers.packages[package.strip()] = places.split()
            continue
        room, _, below = line.partition(":")
        for name in below.split():
            if name not in layers.rooms:
                yield Finding(LAYERS, number, "layers", f"{room} is above {name}: order them")
        layers.rooms[room.strip()] = below.split()


def _is_of_package(source: Source) -> bool:
    return source.path.startswith(_ROOT) and source.suffix == ".py"


def _module_of(source: Source) -> str:
    """The path of a module within the package: a/b for a/b.py, a for a/__init__.py."""
    name = source.path.removeprefix(_ROOT).removesuffix(".py")
    return name if name == "__init__" else name.removesuffix("/__init__")


def _is_within(module: str, place: str) -> bool:
    return module == place or module.startswith(f"{place}/")


def _imported_names(
    source: Source, module: str, files: dict[str, Source]
) -> Iterator[tuple[str, int]]:
    """The dotted names of the modules that a file imports, with the lines."""
    for node in ast.walk(ast.parse(source.text)):
        if isinstance(node, ast.Import):
            yield from ((name.name, node.lineno) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, source, module)
            for name in node.names:
                inner = f"{base}.{name.name}"
                is_module = _own_module(inner, files) == _path_of(inner)
                yield (inner if is_module else base), node.lineno


def _absolute(node: ast.ImportFrom, source: Source, module: str) -> str:
    if not node.level:
        return node.module or ""
    parts = [_PACKAGE, *module.split("/")]
    above = node.level - source.path.endswith("/__init__.py")
    return ".".join([*parts[: len(parts) - above], *([node.module] if node.module else [])])


def _path_of(name: str) -> str:
    """deepfreeze.a.b as a/b; other names as they are."""
    own = name.startswith(f"{_PACKAGE}.")
    return name.removeprefix(f"{_PACKAGE}.").replace(".", "/") if own else name


def _own_module(name: str, files: dict[str, Source]) -> str | None:
    """The module of the package; None for a name of another package."""
    if name == _PACKAGE:
        return "__init__"
    if not name.startswith(f"{_PACKAGE}."):
        return None
    path = _path_of(name)
    return path if path in (*files, _NATIVE) else "__init__"


def _check_room(
    source: Source, line: int, room: str, target: str | None, layers: _Layers
) -> Iterator[Finding]:
    if target is not None and target != room and target not in layers.rooms[room]:
        yield Finding(source.path, line, "layers", f"{room} may not import {target} ({LAYERS})")


def _check_package(
    source: Source, line: int, module: str, package: str, layers: _Layers
) -> Iterator[Finding]:
    if package in sys.stdlib_module_names:
        return
    places = layers.packages.get(package)
    if places is None:
        yield Finding(source.path, line, "layers", f"{LAYERS} has no line for {package}")
    elif not any(_is_within(module, place) for place in places):
        yield Finding(source.path, line, "layers", f"only {', '.join(places)} may import {package}")


def _circles(
    files: dict[str, Source], edges: dict[str, list[tuple[str, int]]]
) -> Iterator[Finding]:
    """One finding for each import that closes a circle of files."""
    done: set[str] = set()
    trail: list[str] = []

    def visit(module: str) -> Iterator[Finding]:
        trail.append(module)
        for target, line in edges[module]:
            if target in trail:
                names = " > ".join([*trail[trail.index(target) :], target])
                yield Finding(files[module].path, line, "layers", f"a circle of files: {names}")
            elif target not in done:
                yield from visit(target)
        done.add(trail.pop())

    for module in sorted(edges):
        if module not in done:
            yield from visit(module)
