"""With df.determinism(), a process's first vector math gives the same as its second.

A statistical test: if the fault is rare, many processes may be right without it.
python/tests/test_determinism.py tests that the calls are made.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROCESSES = 30


def test_no_first_call_differs() -> None:
    several = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.e2e.first_calls", "--json", "--processes", str(PROCESSES)],
        cwd=ROOT, env=several, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    print(found)  # how many differed without it is this machine's luck
    assert found["processes"] == PROCESSES
    assert found["with"] == 0
