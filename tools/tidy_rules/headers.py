"""Every header compiles alone: it includes all headers that it needs.

Several headers are compiled together, in chains. Before a header stand only others that cannot help
it: their system headers are among its own, and its text has none of the names that they declare.
If a chain fails, each of its headers is compiled by itself.

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
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache

from .source import Finding, Source, Tree

_INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)
_WORD = re.compile(r"[A-Za-z_]\w*")
_DECLARED = re.compile(  # what follows such a word, or stands before such a character
    r"(?<=\bclass )\w+|(?<=\bstruct )\w+|(?<=\busing )\w+|(?<=\bdefine )\w+"
    r"|(?<=\bconcept )\w+|(?<!std::)\b\w+(?=\s*[({;=,\[:>}])"
)
_FLAGS = ["-std=c++23", "-fsyntax-only", "-Wall", "-Wextra", "-Iinclude", "-Isrc", "-Itests"]
_SECONDS_MAX = 120


def check(tree: Tree) -> Iterator[Finding]:
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        yield Finding("tools/tidy.py", 1, "headers", f"no {compiler} here; run `make setup`")
        return
    cache_path = tree.root / "build" / "tidy_headers.json"
    known = _load(cache_path.read_text()) if cache_path.exists() else {}
    closures = {h.path: _closure(tree, h) for h in tree.cpp if _is_checked(h)}
    wanted = {path: _hash(closure, compiler) for path, closure in closures.items()}
    stale = {path: closures[path] for path in wanted if known.get(path) != wanted[path]}
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        found = pool.map(lambda chain: _messages(tree, compiler, chain), _chains(stale))
        messages = {path: text for each in found for path, text in each.items()}
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


@dataclass
class _Closure:
    """A header and all that it includes: the tree's own files, and the names of the others."""

    sources: dict[str, Source]
    others: set[str] = field(default_factory=set)

    def add(self, other: _Closure) -> None:
        self.sources.update(other.sources)
        self.others |= other.others


@cache
def _declared_in(text: str) -> frozenset[str]:
    return frozenset(_DECLARED.findall(text))


def _declared(source: Source) -> frozenset[str]:
    """All names that it may declare, and some more."""
    return _declared_in("\n".join(source.code_lines))


def _closure(tree: Tree, header: Source) -> _Closure:
    waiting, closure = [header], _Closure({header.path: header})
    while waiting:
        source = waiting.pop()
        for name in _INCLUDE.findall(source.text):
            paths = (f"include/{name}", f"src/{name}", f"tests/{name}")
            found = [each for path in paths if (each := tree.find(path)) is not None]
            closure.others |= set() if found else {name}
            waiting += [each for each in found if each.path not in closure.sources]
            closure.sources |= {each.path: each for each in found}
    return closure


def _hash(closure: _Closure, compiler: str) -> str:
    total = hashlib.sha256(f"{compiler} {' '.join(_FLAGS)}".encode())
    for path in sorted(closure.sources):
        total.update(closure.sources[path].text.encode())
    return total.hexdigest()


def _declared_by(sources: Iterable[Source]) -> set[str]:
    return {name for each in sources for name in _declared(each)}


def _chains(closures: dict[str, _Closure]) -> list[list[str]]:
    """Each header once, and before it in its chain nothing that helps it."""
    chains: list[tuple[list[str], _Closure]] = []
    for path in sorted(closures, key=lambda path: (len(closures[path].others), path)):
        own = closures[path]
        free = [chain for chain in chains if not _helps(chain[1], path, own)]
        if not free:
            chains.append(([], _Closure({})))
        best = max(free, key=lambda chain: len(chain[1].others)) if free else chains[-1]
        best[0].append(path)
        best[1].add(own)
    return [paths for paths, _ in chains]


def _helps(before: _Closure, path: str, own: _Closure) -> bool:
    if not before.others <= own.others:
        return True
    foreign = (each for name, each in before.sources.items() if name not in own.sources)
    included = (each for name, each in own.sources.items() if name != path)
    # A header that it includes has these names too: from its own includes, or it would fail itself.
    names = _declared_by(foreign) - _declared_by(included)
    return not names.isdisjoint(_WORD.findall("\n".join(own.sources[path].code_lines)))


def _messages(tree: Tree, compiler: str, chain: list[str]) -> dict[str, str]:
    """The first error by header; empty if it compiles."""
    message = _compile(tree, compiler, chain)
    if not message or len(chain) == 1:
        return dict.fromkeys(chain, message)
    return {path: _compile(tree, compiler, [path]) for path in chain}


def _compile(tree: Tree, compiler: str, chain: list[str]) -> str:
    """The first error; empty if it compiles."""
    text = "".join(f'#include "{tree.root / path}"\n' for path in chain)
    command = [compiler, *_FLAGS, "-x", "c++", "-"]
    done = subprocess.run(
        command,
        cwd=tree.root,
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS_MAX,
    )
    if done.returncode == 0:
        return ""
    errors = [line for line in done.stderr.splitlines() if "error:" in line]
    return (errors or done.stderr.splitlines() or ["unknown error"])[0]
