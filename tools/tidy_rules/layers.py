"""src/LAYERS: which folder of src/ may include which, in the sources and in CMake."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .source import Finding, Source, Tree

LAYERS = "src/LAYERS"
_INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<(deepfreeze/[^>]+)>)')
_MODULE = re.compile(r"\bdf_module\(\s*(\w+)([^)]*)\)")
_SECTIONS = {"SOURCES", "DEPS", "LIBS", "TESTS", "TEST_DEPS"}


def check(tree: Tree) -> Iterator[Finding]:
    path = tree.root / LAYERS
    if not path.exists():
        return
    allowed: dict[str, list[str]] = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        folder, _, below = line.partition(":")
        for name in below.split():
            if name not in allowed:
                yield Finding(LAYERS, number, "layers", f"{folder} is above {name}: order them")
        allowed[folder.strip()] = below.split()
    for source in tree.cpp:
        yield from _check_includes(source, allowed)
    yield from _check_cmake(tree, allowed)


def _check_includes(source: Source, allowed: dict[str, list[str]]) -> Iterator[Finding]:
    parts = source.path.split("/")
    for number, line in enumerate(source.lines, 1):
        match = _INCLUDE.match(line)
        if match is None:
            continue
        target = (match.group(1) or match.group(2)).split("/")[0]
        why = _refusal(parts, target, allowed, source.is_test)
        if why:
            yield Finding(source.path, number, "layers", why)


def _refusal(
    parts: list[str], target: str, allowed: dict[str, list[str]], is_test: bool
) -> str | None:
    """Why the file at `parts` may not include a header of folder `target`; None: it may.

    A test may include any folder below its own: it often makes by hand the data that its folder
    reads.
    """
    if target == "deepfreeze":
        return None
    if parts[:2] == ["include", "deepfreeze"]:
        return f"a public header includes {target}/; only <deepfreeze/*.h> and the standard library"
    if parts[:2] == ["python", "src"] and target in allowed:
        return f"python/src includes {target}/; only <deepfreeze/*.h>"
    if parts[0] != "src" or len(parts) < 3 or target not in allowed:
        return None
    folder = parts[1]
    if folder not in allowed:
        return f"folder {folder} has no line in {LAYERS}"
    order = list(allowed)
    if target == folder or target in allowed[folder]:
        return None
    if is_test and order.index(target) < order.index(folder):
        return None
    return f"{folder} may not include {target}/ (see {LAYERS})"


def _check_cmake(tree: Tree, allowed: dict[str, list[str]]) -> Iterator[Finding]:
    for source in tree.sources:
        parts = source.path.split("/")
        if parts[0] != "src" or parts[-1] != "CMakeLists.txt" or len(parts) < 3:
            continue
        for match in _MODULE.finditer(re.sub(r"#.*", "", source.text)):
            name, deps = match.group(1), _section(match.group(2), "DEPS")
            if name in allowed and set(deps) != set(allowed[name]):
                wanted = " ".join(allowed[name])
                yield Finding(source.path, 1, "layers", f"DEPS of {name} must be: {wanted}")


def _section(arguments: str, wanted: str) -> list[str]:
    current, found = "", []
    for word in arguments.split():
        if word in _SECTIONS:
            current = word
        elif current == wanted:
            found.append(word)
    return found
