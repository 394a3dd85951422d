"""Keras for its tests: its backend in this process, and which tests are about one of them alone."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
keras = pytest.importorskip("keras", reason="no keras here: it is in build/frameworks-venv")
from deepfreeze.keras import DeepFreezeCallback  # noqa: E402 (it wants Keras)

__all__ = ["BACKEND", "DeepFreezeCallback", "alike_on_all", "keras", "only_on"]

BACKEND = keras.backend.backend()


# The callback's own work, which no backend has a part in. Set by test_keras_backends.py.
alike_on_all = pytest.mark.skipif(
    os.environ.get("DEEPFREEZE_ONLY_DIFFERENCES") == "1",
    reason="every backend does this alike: `DEEPFREEZE_ALL_BACKENDS=1 make frameworks` repeats it",
)


def only_on(backend: str, why: str) -> pytest.MarkDecorator:
    """For features that other backends lack; test_keras_backends.py runs the test on `backend`."""
    reason = f"KERAS_BACKEND is {BACKEND}, and {why}: test_keras_backends.py runs it on {backend}"
    return pytest.mark.skipif(backend != BACKEND, reason=reason)
