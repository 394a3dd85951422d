from collections.abc import Iterator
from pathlib import Path

import pytest

from .fault_proxy import FaultProxy
from .seaweed import Seaweed, started
from .stored_run import StoredRun


@pytest.fixture(scope="session")
def store() -> Iterator[Seaweed]:
    """One for all tests of a process. A test that kills it starts it again."""
    with started() as seaweed:
        yield seaweed


@pytest.fixture
def run(store: Seaweed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoredRun]:
    for name in ("AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    with FaultProxy(store.port) as proxy:
        stored = StoredRun(store, proxy, store.new_prefix(), tmp_path)
        for name, value in stored.environment().items():
            monkeypatch.setenv(name, value)
        yield stored
