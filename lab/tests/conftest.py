"""One thread a process: these networks are tiny, and threads that wait for each other cost more.

Programs of torch's environment are forked from a server that has imported torch.
"""

import subprocess
import sys
from collections.abc import Iterator
from os import environ
from types import SimpleNamespace
from typing import Any

import pytest

from lab.faults import nursery
from lab.measure import program
from tests.support import warm_python

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


def start(command: list[str], **options: Any) -> subprocess.Popen[Any]:
    if command[:2] == [sys.executable, "-m"]:
        return warm_python.Program(command, warm_python.TORCH, serves=False, **options)
    return subprocess.Popen(command, **options)


@pytest.fixture(autouse=True)
def warm(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {**vars(subprocess), "Popen": start}
    for module in (nursery, program):
        monkeypatch.setattr(module, "subprocess", SimpleNamespace(**known))
