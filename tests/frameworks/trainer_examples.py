"""The examples of docs/frameworks, run as they are written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def example_of(name: str) -> str:
    """The Python on that page, one block after the other."""
    page = (ROOT / "docs" / "frameworks" / f"{name}.md").read_text()
    return "\n".join(block.split("```")[0] for block in page.split("```python\n")[1:])


# As Python ends, a thread of gloo may let go of its last operation; it then waits for the
# interpreter and aborts the process (torch 2.13, 5 of 50 jobs without DeepFreeze).
LEAVE = """
import os, sys
sys.stdout.flush()
os._exit(0)
"""


def run_python(text: str, place: Path, *arguments: str, ranks: int = 1) -> str:
    """The output of a process of its own, or of a job of several, in that directory."""
    script = place / "script.py"
    script.write_text(text + LEAVE if ranks > 1 else text)
    command = [sys.executable]
    if ranks > 1:
        command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [*command, str(script), *arguments],
        cwd=place,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        timeout=300,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
