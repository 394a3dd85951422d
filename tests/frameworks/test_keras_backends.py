"""The tests of Keras once more, each file on every backend that this process does not have.

Tests that are `alike_on_all` are repeated with DEEPFREEZE_ALL_BACKENDS=1: `make torture` does so.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.frameworks.keras_kit import BACKEND

HERE = Path(__file__).resolve().parent
FILES = ("test_keras.py", "test_keras_whole_state.py")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "backend", [each for each in ("tensorflow", "torch", "jax") if each != BACKEND]
)
def test_on_another_backend(backend: str, name: str) -> None:
    quick = "0" if os.environ.get("DEEPFREEZE_ALL_BACKENDS") == "1" else "1"
    own = {"KERAS_BACKEND": backend, "DEEPFREEZE_ONLY_DIFFERENCES": quick}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / name)],
        cwd=HERE.parents[1], env={**os.environ, **own},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
