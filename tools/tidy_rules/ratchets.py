"""Sizes that may not grow: 70 lines a function, 500 a file (800 for tests).

A longer one may exist if tools/ratchet.txt names it with its size. That number may only
shrink: tidy also asks for a lower number, or none, as soon as the code allows it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from .source import PYTHON, Finding, Source, Tree

FUNCTION_MAX = 70
FILE_MAX = 500
TEST_FILE_MAX = 800

# Starts of a line that open no function.
_NO_FUNCTION = re.compile(
    r"\s*(?:namespace|class|struct|enum|union|extern|using|typedef|if|for|while|switch|do|else|"
    r"try|catch|return|case|default|public|private|protected|#|\}|//)\b|\s*[#}{/:]|\s*$"
)
_NAME = re.compile(r"([\w:~]+)\s*\(")
_HEADER_LINES_MAX = 20


def check(tree: Tree) -> Iterator[Finding]:
    sizes: dict[str, dict[str, tuple[int, int]]] = {"function": {}, "file": {}}
    limits: dict[str, dict[str, int]] = {"function": {}, "file": {}}
    for source in tree.sources:
        if not (source.is_cpp or source.suffix in PYTHON):
            continue
        limits["file"][source.path] = TEST_FILE_MAX if source.is_test else FILE_MAX
        sizes["file"][source.path] = (len(source.lines), 1)
        for name, line, length in functions(source):
            key = f"{source.path}:{name}"
            limits["function"][key] = FUNCTION_MAX
            if length > sizes["function"].get(key, (0, 0))[0]:
                sizes["function"][key] = (length, line)
    for kind, measured in sizes.items():
        yield from _compare(kind, measured, limits[kind], tree.exceptions(kind))


def _compare(
    kind: str, sizes: dict[str, tuple[int, int]], limits: dict[str, int], known: dict[str, int]
) -> Iterator[Finding]:
    for key, (size, line) in sizes.items():
        limit = max(limits[key], known.get(key, 0))
        if size > limit:
            path, _, name = key.partition(":")
            yield Finding(path, line, kind, f"{name or 'it'} has {size} lines, {limit} at most")
    for key, recorded in known.items():
        size = sizes.get(key, (0, 0))[0]
        if size <= limits.get(key, 0) or key not in sizes:
            yield Finding("tools/ratchet.txt", 1, kind, f"{key} needs no exception: remove it")
        elif size < recorded:
            yield Finding("tools/ratchet.txt", 1, kind, f"{key} is down to {size}: write that")


def functions(source: Source) -> Iterator[tuple[str, int, int]]:
    """(name, first line, lines) of every function definition."""
    if source.is_cpp:
        yield from _cpp_functions(source.code_lines)
        return
    try:
        module = ast.parse(source.text)
    except SyntaxError:
        return
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1


def _cpp_functions(lines: list[str]) -> Iterator[tuple[str, int, int]]:
    """Relies on clang-format: a body closes at the indent at which its header began."""
    for start, line in enumerate(lines):
        goes_on = start > 0 and lines[start - 1].rstrip().endswith(",")  # a header's second line
        if goes_on or line.rstrip().endswith("=") or _NO_FUNCTION.match(line):
            continue
        indent = line[: len(line) - len(line.lstrip())]
        opening = _opening_line(lines, start)
        if opening is None:
            continue
        name = _NAME.search(" ".join(lines[start : opening + 1]))
        if name is None:
            continue
        for end in range(opening + 1, len(lines)):
            if lines[end].startswith(indent + "}"):
                yield name.group(1), start + 1, end - start + 1
                break


def _opening_line(lines: list[str], start: int) -> int | None:
    """The line that ends with the body's brace; None if the statement has no body."""
    for index in range(start, min(start + _HEADER_LINES_MAX, len(lines))):
        text = lines[index].rstrip()
        if text.endswith("{"):
            return index
        if text.endswith((";", "}")) or not text:
            return None
    return None
