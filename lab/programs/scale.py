"""Starts one job of several ranks, in one of the frameworks, and hands back what it reports."""

import importlib.util
import shutil
import sys
from dataclasses import dataclass
from typing import Any

from lab.measure.ranks_jobs import run_job
from lab.programs.answer import carry_out


@dataclass(frozen=True)
class Launch:
    """How a framework's ranks are started, and what that needs."""

    launcher: str
    needs_module: str = ""
    needs_command: str = ""


LAUNCHES = {
    "pytorch": Launch("torchrun"),
    "chainer": Launch("mpirun", needs_module="mpi4py", needs_command="mpirun"),
    "tensorflow": Launch("workers"),
}


def work(request: dict[str, Any]) -> Any:
    launch = LAUNCHES[request["framework"]]
    if launch.needs_module and importlib.util.find_spec(launch.needs_module) is None:
        raise ModuleNotFoundError(f"not installed: {launch.needs_module}")
    if launch.needs_command and shutil.which(launch.needs_command) is None:
        raise ModuleNotFoundError(f"not installed: {launch.needs_command}")
    return run_job(
        request["ranks"], "lab.programs.scale_start", request, launcher=launch.launcher,
        seconds_max=request["seconds_max"],
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(carry_out(sys.argv[1:], work))
