"""Every header compiles alone: it includes all headers that it needs.

Headers that compiled are remembered in build/tidy_headers.json by a hash over the header and the
headers of the tree that it includes, so a second run compiles only changed ones.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from .source import Finding, Source, Tree

_INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)
_FLAGS = ["-std=c++23", "-fsyntax-only", "-Wall", "-Wextra", "-Iinclude", "-Isrc", "-Itests"]
_SECONDS_MAX = 120


def check(tree: Tree) -> Iterator[Finding]:
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        yield Finding("tools/tidy.py", 1, "headers", f"no {compiler} here; run `make setup`")
        return
    cache_path = tree.root / "build" / "tidy_headers.json"
    known = _load(cache_path.read_text()) if cache_path.exists() else {}
    wanted = {h.path: _closure_hash(tree, h, compiler) for h in tree.cpp if _is_checked(h)}
    stale = [path for path, content in wanted.items() if known.get(path) != content]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        found = pool.map(lambda path: _compile(tree, compiler, path), stale)
        messages = dict(zip(stale, found, strict=True))
    good = {path: content for path, content in wanted.items() if not messages.get(path)}
    cache_path.parent.mkdir(exist_ok=True)
    cache_path.write_text(json.dumps(good, indent=0, sort_keys=True))
    for path, message in messages.items():
        if message:
            yield Finding(path, 1, "headers", f"does not compile alone: {message}")


def _load(text: str) -> dict[str, str]:
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError):
        return {}


def _is_checked(source: Source) -> bool:
    """Binding headers need Python's and nanobind's folders, others MPI's: their builds compile
    those."""
    mine = not source.path.startswith("python/") and "#include <mpi.h>" not in source.text
    return source.suffix == ".h" and mine


def _closure_hash(tree: Tree, header: Source, compiler: str) -> str:
    total = hashlib.sha256(f"{compiler} {' '.join(_FLAGS)}".encode())
    waiting, seen = [header], {header.path}
    while waiting:
        source = waiting.pop()
        total.update(source.text.encode())
        for name in _INCLUDE.findall(source.text):
            for path in (f"include/{name}", f"src/{name}", f"tests/{name}"):
                found = tree.find(path)
                if found is not None and path not in seen:
                    seen.add(path)
                    waiting.append(found)
    return total.hexdigest()


def _compile(tree: Tree, compiler: str, path: str) -> str:
    """The first error; empty if it compiles."""
    command = [compiler, *_FLAGS, "-x", "c++-header", path]
    done = subprocess.run(
        command, cwd=tree.root, capture_output=True, text=True, check=False, timeout=_SECONDS_MAX
    )
    if done.returncode == 0:
        return ""
    errors = [line for line in done.stderr.splitlines() if "error:" in line]
    return (errors or done.stderr.splitlines() or ["unknown error"])[0]
