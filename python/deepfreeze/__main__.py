"""`python3 -m deepfreeze VERB`: the verbs that need a framework. `deepfreeze` has the others."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from deepfreeze.importing import command


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one verb; its exit code."""
    parser = argparse.ArgumentParser(prog="deepfreeze", description=__doc__, allow_abbrev=False)
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    command.add_to(verbs)
    options = parser.parse_args(arguments)
    code: int = options.main(options)
    return code


if __name__ == "__main__":
    sys.exit(main())
