"""All cases of conformance.py, for each framework, in a process of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support import warm_python

from .conformance import MODULE, SLOW
from .training import FRAMEWORKS, IMPORTS, missing, variables_of

ROOT = Path(__file__).resolve().parents[2]
# Their imports take so long that the process that resumes is forked, too. It orders sets as the one
# before it did: only by hand, without --fork-all, another order would show.
SLOW_TO_IMPORT = {
    "tensorflow", "keras_tensorflow", "keras_torch", "keras_jax", "lightning", "huggingface",
    "accelerate",
}  # fmt: skip


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_case(framework: str) -> None:
    if reason := missing(framework):
        pytest.skip(reason)
    forks = ["--fork-all"] if framework in SLOW_TO_IMPORT else []
    done = warm_python.run(
        [sys.executable, "-m", MODULE, framework, "--kills", "1", *forks],
        IMPORTS.get(framework, ()),
        cwd=ROOT, env={**os.environ, **variables_of(framework), **SLOW},
        timeout=600, capture_output=True, serves=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
