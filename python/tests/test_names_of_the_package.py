"""What `import deepfreeze` offers: in dir(), by tab completion, in help()."""

import inspect
import subprocess
import sys

import deepfreeze as df

PUBLIC = [
    "CheckpointError", "CheckpointTimeoutError", "Checkpointer", "CorruptError", "Determinism",
    "DirectoryRanks", "EncodeError", "FencedError", "IncompleteError", "MPIRanks", "MismatchError",
    "NoSpaceError", "PerRank", "RNG", "RestoreReport", "SaveHandle", "SaveStatus", "TorchRanks",
    "TornCaptureError", "checkpoints", "determinism", "every", "finish_on_sigterm", "fork", "keep",
    "load_into", "parity", "partner", "per_rank", "register_type", "tag", "tier",
]  # fmt: skip


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


def test_every_public_name_has_help() -> None:
    for name in PUBLIC:
        assert inspect.getdoc(getattr(df, name)), name


def test_the_help_of_init_has_every_parameter() -> None:
    text = inspect.getdoc(df.Checkpointer.__init__) or ""
    parameters = [*inspect.signature(df.Checkpointer.__init__).parameters][1:]
    assert len(parameters) > 10
    missing = [each for each in parameters if f"\n{each}: " not in text and f"`{each}`" not in text]
    assert missing == []
