from collections.abc import Iterator
from pathlib import Path

import pytest

import deepfreeze as df


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A directory for one run; it does not exist yet."""
    return tmp_path / "run"


@pytest.fixture
def ckpt(run: Path) -> Iterator[df.Checkpointer]:
    with df.Checkpointer(run) as checkpointer:
        yield checkpointer
