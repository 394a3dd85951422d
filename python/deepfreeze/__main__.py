"""`python3 -m deepfreeze VERB`: the verbs that need a framework. `deepfreeze` has the others."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from deepfreeze import studying
from deepfreeze.importing import command


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one verb; its exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words[:1] == ["study"]:  # whose words only the study itself knows
        return studying.main(words[1:])
    parser = argparse.ArgumentParser(prog="deepfreeze", description=__doc__, allow_abbrev=False)
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    command.add_to(verbs)
    verbs.add_parser("study", help="Measure what checkpoints cost, hold and survive here")
    options = parser.parse_args(words)
    code: int = options.main(options)
    return code


if __name__ == "__main__":
    sys.exit(main())
