"""The public modules of the package, in the environment that has every framework."""

from __future__ import annotations

import importlib
import inspect
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest

import deepfreeze as df

pytest.importorskip("lightning", reason="of build/frameworks-venv")

# The modules that a program imports by itself, with their public names.
MODULES = {
    "accelerate": ["AcceleratorCheckpointer"],
    "chainer": ["DeepFreezeExtension"],
    "chainer_compat": ["install"],
    "dcp": ["AsyncStager", "DeepFreezeFileSystem", "StorageReader", "StorageWriter"],
    "errors": sorted(name for name in df.__all__ if name.endswith("Error")),
    "huggingface": ["DeepFreezeTrainerMixin"],
    "keras": ["DeepFreezeCallback"],
    "lightning": ["DeepFreezeCallback", "DeepFreezeCheckpointIO"],
    "torchtitan": ["DeepFreezeCheckpointManager"],
    "tracking": ["to_mlflow", "to_tensorboard"],
}


@pytest.mark.parametrize("module", MODULES)
def test_a_public_module_has_its_names_under_its_own_path(module: str) -> None:
    found = importlib.import_module(f"deepfreeze.{module}")
    for name in MODULES[module]:
        public = getattr(found, name)
        assert not inspect.isclass(public) or public.__module__.startswith(f"deepfreeze.{module}")


def test_the_list_of_public_modules_is_whole() -> None:
    folder = Path(df.__file__).parent
    outside = {path.stem for path in folder.glob("[!_]*.py")} - {
        "checkpointer",
        "describe",
        "forking",
        "loading",
        "signals",
        "tagging",
    }
    assert outside | {"dcp", "tracking"} == set(MODULES)
    assert set(df._MODULES) | {"errors"} == set(MODULES)
