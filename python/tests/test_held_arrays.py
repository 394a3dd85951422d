"""Arrays that adapters give to a save, as the entries of it."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from typing import Any

import numpy as np

import deepfreeze as df
from deepfreeze.frameworks.held import HeldArrays
from deepfreeze.saving.capture import Capture
from deepfreeze.state.registry import REGISTERED, REGISTERED_NAMES


def stored(*arrays: Any) -> tuple[Capture, list[str]]:
    capture, held = Capture({}), HeldArrays()
    return capture, [held.store(each, f"a{i}", capture)["k"] for i, each in enumerate(arrays)]


def test_what_lies_in_another_order_is_stored_in_order() -> None:
    array = np.arange(6, dtype=np.int32).reshape(2, 3).T
    capture, keys = stored(array, array, array[::-1])
    assert keys == ["a0", "a0", "a2"]
    for entry, expected in zip(capture.entries, (array, array[::-1]), strict=True):
        assert entry.shape == (3, 2)
        assert ctypes.string_at(entry.address, entry.bytes) == expected.tobytes()


def test_what_has_no_memory_of_its_own_is_no_other() -> None:
    empty = np.zeros((0, 3))
    capture, keys = stored(empty, empty, np.zeros(()))
    assert keys == ["a0", "a1", "a2"]
    assert [entry.shape for entry in capture.entries] == [(0, 3), (0, 3), ()]


def test_what_is_made_is_made_once() -> None:
    capture, held, made = Capture({}), HeldArrays(), []

    def make() -> Any:
        made.append(np.ones(4))
        return made[-1]

    nodes = [held.store_once("it", make, path, capture) for path in ("a", "b")]
    assert nodes == [{"$": "array", "k": "a"}] * 2
    assert len(made) == len(capture.entries) == 1


def test_a_read_only_array_is_stored_beside_torch_without_a_warning() -> None:
    program = (
        "import numpy as np, torch; from deepfreeze.saving.capture import Capture; "
        "a = np.arange(3); a.flags.writeable = False; assert len(Capture({'a': a}).entries) == 1"
    )  # a process of its own: torch warns once
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


def test_arrays_of_a_registered_type_go_to_its_own_function() -> None:
    df.register_type(np.ndarray, "test.listed", np.ndarray.tolist, np.asarray)
    try:
        text = Capture({"in a dict": np.arange(2), "in a list": [np.arange(2)]}).text
    finally:
        del REGISTERED[np.ndarray], REGISTERED_NAMES["test.listed"]
    assert text.count('"t":"test.listed","v":[0,1]') == 2
