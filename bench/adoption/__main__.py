"""Adoption beside DeepFreeze's capture: `python -m bench.adoption --rounds 7 --steps 40`.

The arguments and the tables are those of bench.e2e.window. DEEPFREEZE_ADOPTION_LIBRARY names the
C++ half where it is not in build/release.
"""

from __future__ import annotations

import sys

from bench.adoption.savers import ADOPTION
from bench.e2e.savers import Saver, WindowLatency, WindowThroughput
from bench.e2e.window import Command, main

SAVERS: tuple[type[Saver], ...] = (WindowLatency, WindowThroughput, *ADOPTION)
COMMAND = Command("bench.adoption", {saver.name: saver for saver in SAVERS})

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], COMMAND))
