"""`python -m lab` in the source tree; `deepfreeze study` comes here."""

from __future__ import annotations

import sys

from lab.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
