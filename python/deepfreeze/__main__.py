"""`python3 -m deepfreeze VERB`: does `import`, `explore`, `try` and `study`.

The other verbs are the native program's.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from deepfreeze.base import program, studying
from deepfreeze.exploring import command as exploring
from deepfreeze.importing import command as importing
from deepfreeze.trying import command as trying

_FAILURE = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one verb and returns its exit code.

    Does not return if the native program has the verb.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words[:1] == ["study"]:  # only the study itself knows its words
        return studying.main(words[1:])
    if words[:1] in (["import"], ["explore"], ["try"]):
        return _parsed(words, {"import": importing, "explore": exploring, "try": trying}[words[0]])
    if words[:1] == ["dcp"]:  # from the native program: only we can read these checkpoints
        from deepfreeze.looking import command as looking  # needs torch

        return looking.main(words[1:])
    return _hand_over(words)


def _parsed(words: list[str], verb: ModuleType) -> int:
    parser = argparse.ArgumentParser(prog="deepfreeze", allow_abbrev=False)
    verb.add_to(parser.add_subparsers(metavar="VERB", required=True))
    options = parser.parse_args(words)
    code: int = options.main(options)
    return code


def _hand_over(words: list[str]) -> int:
    """Replaces this process by the native program."""
    found = program.find()
    if found is None:
        print(f"deepfreeze: {program.NOT_FOUND}", file=sys.stderr)
        return _FAILURE
    sys.stdout.flush()
    try:
        os.execv(found, ["deepfreeze", *words])
    except OSError as cause:
        print(f"deepfreeze: run {found}: {cause.strerror}", file=sys.stderr)
        return _FAILURE


if __name__ == "__main__":
    sys.exit(main())
