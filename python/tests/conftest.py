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
    # Copied behind training: at once, as "auto" may choose, leaves nothing to wait for or to tear.
    with df.Checkpointer(run, profile="latency") as checkpointer:
        yield checkpointer
