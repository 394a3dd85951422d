"""Starts jobs of several ranks, and reads what their rank 0 reports. Imports no framework.

A rank is `python -m module --as-rank JSON`, started by whatever the framework has for that.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SECONDS_MAX = 900.0  # of one job; beyond it, it hangs
END_SECONDS = 10.0  # for a launcher to end its ranks
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def torchrun(ranks: int) -> list[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*command, "--nproc-per-node", str(ranks), "-m"]


def mpirun(ranks: int) -> list[str]:
    """As any user, with more ranks than cores, without a network or what containers forbid."""
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    command += ["--mca", "btl", "self,vader", "--mca", "btl_vader_single_copy_mechanism", "none"]
    return [*command, "-n", str(ranks), sys.executable, "-m"]


def workers(ranks: int) -> list[str]:
    """As TensorFlow's documentation does: processes that have TF_CONFIG."""
    return [sys.executable, "-m", "lab.measure.ranks_workers", str(ranks)]


LAUNCHERS = {"torchrun": torchrun, "mpirun": mpirun, "workers": workers}


def run_job(
    ranks: int,
    module: str,
    arguments: Mapping[str, Any],
    environment: Mapping[str, str] | None = None,
    *,
    launcher: str = "torchrun",
    seconds_max: float = SECONDS_MAX,
) -> Any:
    """What rank 0 has written to `out`, of the arguments that each rank is given.

    RuntimeError with the job's output where it failed, TimeoutError beyond `seconds_max`.
    """
    with tempfile.TemporaryDirectory(prefix="df-bench-ranks-") as place:
        out = Path(place) / "report.json"
        given = json.dumps({**arguments, "out": str(out)})
        command = [*LAUNCHERS[launcher](ranks), module, "--as-rank", given]
        own = {**ONE_THREAD, "GLOO_SOCKET_IFNAME": "lo", **(environment or {})}
        status, said = run(command, own, seconds_max)
        if status != 0 or not out.exists():
            raise RuntimeError(f"{ranks} ranks of {module} failed:\n{said}")
        return json.loads(out.read_text())


def run(command: list[str], own: Mapping[str, str], seconds_max: float) -> tuple[int, str]:
    """Its exit status, and what it and its ranks have printed."""
    process = subprocess.Popen(
        command, env={**os.environ, **own}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace",
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=seconds_max)
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"a job of several ranks took more than {seconds_max:g} s") from None
    finally:
        end(process)
    return process.returncode, said


def end(process: subprocess.Popen[str]) -> None:
    """Asked to, a launcher ends its ranks, which have sessions of their own."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=END_SECONDS)
    process.kill()
    process.wait()
