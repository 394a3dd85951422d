"""One thread a process: these networks are tiny, and threads that wait for each other cost more."""

import sys
from collections.abc import Iterator
from os import environ

import pytest

# Smoke runs of the length that `make torture` wants; else one round, and as few ranks as will do.
LONG = environ.get("DEEPFREEZE_LONG_SMOKE") == "1"


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Of this process and of those that the tests of a module start, unless they say otherwise."""
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch is not None else 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        if torch is not None:
            torch.set_num_threads(1)
        yield
    if torch is not None:
        torch.set_num_threads(before)
