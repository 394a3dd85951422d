"""The examples of docs/frameworks, run as they are written."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.support import warm_python

from .training import IMPORTS

ROOT = Path(__file__).resolve().parents[2]


def example_of(name: str) -> str:
    """The Python on that page, one block after the other."""
    page = (ROOT / "docs" / "frameworks" / f"{name}.md").read_text()
    return "\n".join(block.split("```")[0] for block in page.split("```python\n")[1:])


def run_python(text: str, place: Path, *arguments: str, trainer: str, ranks: int = 1) -> str:
    """The output of a process of its own, or of a job of several, in that directory."""
    script = place / "script.py"
    script.write_text(text)
    job = ["-m", "tests.frameworks.forked_ranks", str(ranks), str(script)]
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    done = warm_python.run(
        [sys.executable, *(job if ranks > 1 else ["-c", text]), *arguments],
        IMPORTS[trainer],
        cwd=place,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        timeout=300,
        capture_output=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
