"""What `import deepfreeze` offers: in dir(), by tab completion, in help()."""

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import deepfreeze as df

PUBLIC = [
    "CheckpointError", "CheckpointTimeoutError", "Checkpointer", "CorruptError", "Determinism",
    "DirectoryRanks", "EncodeError", "FencedError", "IncompleteError", "MPIRanks", "MismatchError",
    "NoSpaceError", "PerRank", "RNG", "RestoreReport", "SaveHandle", "SaveStatus", "TorchRanks",
    "TornCaptureError", "determinism", "every", "finish_on_sigterm", "keep", "per_rank",
    "register_type",
]  # fmt: skip


# The modules that a program imports by itself, with their public names.
MODULES = {
    "accelerate": ["AcceleratorCheckpointer"],
    "chainer": ["DeepFreezeExtension"],
    "chainer_compat": ["install"],
    "dcp": ["AsyncStager", "DeepFreezeFileSystem", "StorageReader", "StorageWriter"],
    "errors": sorted(name for name in PUBLIC if name.endswith("Error")),
    "huggingface": ["DeepFreezeTrainerMixin"],
    "keras": ["DeepFreezeCallback"],
    "lightning": ["DeepFreezeCallback", "DeepFreezeCheckpointIO"],
    "torchtitan": ["DeepFreezeCheckpointManager"],
}


def dir_after(imports: str) -> list[str]:
    code = f"import deepfreeze{imports}; print(*dir(deepfreeze))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100
    )
    return done.stdout.split()


def test_dir_has_the_public_names_alone() -> None:
    assert dir_after("") == PUBLIC
    assert sorted(df.__all__) == PUBLIC
    assert all(hasattr(df, name) for name in PUBLIC)


def test_and_the_public_modules_that_were_imported() -> None:
    imports = ", deepfreeze.dcp, deepfreeze.chainer_compat, deepfreeze.frameworks.in_use.rng"
    assert dir_after(imports) == sorted([*PUBLIC, "chainer_compat", "dcp"])


@pytest.mark.parametrize("module", MODULES)
def test_a_public_module_has_its_names_under_its_own_path(module: str) -> None:
    try:
        found = importlib.import_module(f"deepfreeze.{module}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("deepfreeze"):
            raise
        pytest.skip(f"needs {error.name}")
    for name in MODULES[module]:
        public = getattr(found, name)
        assert not inspect.isclass(public) or public.__module__.startswith(f"deepfreeze.{module}")


def test_the_list_of_public_modules_is_whole() -> None:
    folder = Path(df.__file__).parent
    outside = {path.stem for path in folder.glob("[!_]*.py")} - {
        "checkpointer",
        "describe",
        "signals",
    }
    assert outside | {"dcp"} == set(MODULES)


def test_every_public_name_has_help() -> None:
    for name in PUBLIC:
        assert inspect.getdoc(getattr(df, name)), name


def test_the_help_of_init_has_every_parameter() -> None:
    text = inspect.getdoc(df.Checkpointer.__init__) or ""
    parameters = [*inspect.signature(df.Checkpointer.__init__).parameters][1:]
    assert len(parameters) > 10
    missing = [each for each in parameters if f"\n{each}: " not in text and f"`{each}`" not in text]
    assert missing == []
