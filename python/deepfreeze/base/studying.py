"""`deepfreeze study`: hands over to the study of the source tree, which no wheel has."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

_GOOD, _USAGE = 0, 2
_SOURCE = "--source"
_MARK = Path("lab") / "__main__.py"
_HELP = f"""\
usage: deepfreeze study [{_SOURCE} DIR] EXPERIMENT...

Measures on this machine the cost, content and survival of checkpoints, with DeepFreeze and with the
writers of other libraries.

The study is a part of the source tree and not of this package, so it needs a checkout:
`make build` there, then `.venv/bin/deepfreeze study --help` lists the experiments.
{_SOURCE} DIR names a checkout for a package that was installed elsewhere."""


def main(arguments: Sequence[str]) -> int:
    """Does not return if the source tree is found: the study replaces this process."""
    named, rest = _without_source(list(arguments))
    tree = next((path for path in _candidates(named) if (path / _MARK).is_file()), None)
    if tree is None and named is None and not {"-h", "--help"}.isdisjoint(rest):
        print(_HELP)
        return _GOOD
    if tree is None:
        print(_not_found(named), file=sys.stderr)
        return _USAGE
    # -P: nothing is imported from the current directory, which anybody may have written.
    command = [sys.executable, "-P", "-m", "lab", *rest]
    paths = os.pathsep.join(filter(None, (str(tree), os.environ.get("PYTHONPATH"))))
    sys.stdout.flush()
    os.execve(sys.executable, command, {**os.environ, "PYTHONPATH": paths})


def _without_source(arguments: list[str]) -> tuple[Path | None, list[str]]:
    """The directory after --source, and the other words."""
    if _SOURCE not in arguments:
        return None, arguments
    place = arguments.index(_SOURCE)
    named = Path(arguments[place + 1]).resolve() if place + 1 < len(arguments) else None
    return named, arguments[:place] + arguments[place + 2 :]


def _candidates(named: Path | None) -> Iterator[Path]:
    """The named tree alone; without a name the tree whose .venv, or build/*-venv, this is."""
    if named is not None:
        yield named
        return
    environment = Path(sys.prefix)
    yield environment.parent
    yield environment.parent.parent


def _not_found(named: Path | None) -> str:
    if named is not None:
        return f"deepfreeze study: {named} is no source tree of DeepFreeze: it has no {_MARK}"
    return (
        "deepfreeze study: the study is a part of the source tree: run it from there "
        f"(`make build`, then `.venv/bin/deepfreeze study`), or name the tree: {_SOURCE} DIR"
    )
