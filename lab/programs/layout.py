"""Writes which tensors a workload's state has."""

import sys
from pathlib import Path
from typing import Any

from lab.networks.layouts import LAYOUTS
from lab.programs.answer import carry_out


def work(request: dict[str, Any]) -> dict[str, Any]:
    layout = LAYOUTS[request["workload"]]()
    layout.write(Path(request["layout"]))
    return {"bytes": layout.nbytes, "tensors": len(layout.tensors)}


if __name__ == "__main__":
    sys.exit(carry_out(sys.argv[1:], work))
