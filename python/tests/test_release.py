"""Memory of a restore or a load is given back at once, not when a collector runs."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest
import torch

import deepfreeze as df

ROUNDS = 5
MEGABYTES = 32


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident_megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def state() -> dict[str, object]:
    large = numpy.zeros(MEGABYTES << 18, dtype=numpy.float32)
    return {"a": large, "b": torch.zeros(3), "c": [1, {"d": torch.ones(2).t()}], "e": {1, 2}}


def test_a_load_keeps_neither_memory_nor_descriptors(tmp_path: Path) -> None:
    with df.Checkpointer(tmp_path / "run") as ckpt:
        handle = ckpt.save(1, state())
        assert handle is not None
        handle.wait()
        loaded = ckpt.load()
        del loaded
        files, resident = open_files(), resident_megabytes()
        for _ in range(ROUNDS):
            loaded = ckpt.load()
            del loaded
        assert open_files() == files
        assert resident_megabytes() - resident < 1.5 * MEGABYTES


def test_a_restore_keeps_no_descriptor_whether_it_fits_or_not(tmp_path: Path) -> None:
    live = state()
    with df.Checkpointer(tmp_path / "run") as ckpt:
        handle = ckpt.save(1, live)
        assert handle is not None
        handle.wait()
        assert ckpt.restore(live) == 1
        files = open_files()
        for _ in range(ROUNDS):
            assert ckpt.restore(live) == 1
            with pytest.raises(df.MismatchError):
                ckpt.restore({"a": torch.zeros(1)})
        assert open_files() == files
