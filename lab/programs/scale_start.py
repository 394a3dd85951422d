"""Where every rank begins: `python -m lab.programs.scale_start --as-rank JSON`.

Imports little before it ends with its launcher, however that ends: a rank may have a session of its
own, so that ending the group of the launcher would leave it.
"""

import importlib
import json
import os
import sys
from typing import Any

from lab.faults.parent import end_with_parent

INIT = 1  # who inherits what has lost its parent


def main(words: list[str]) -> int:
    end_with_parent()
    if os.getppid() == INIT:
        return 1
    arguments: dict[str, Any] = json.loads(words[1])
    importlib.import_module(f"lab.programs.scale_{arguments['framework']}").main(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
