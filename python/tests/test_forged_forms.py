"""Stored dtypes and views that no save has written are refused."""

from typing import Any

import numpy as np
import pytest
import torch
from testkit import save

import deepfreeze as df
from deepfreeze.frameworks import numpy as numpy_adapter
from deepfreeze.frameworks.torch import tensors as torch_tensors
from deepfreeze.frameworks.torch.adapter import TorchAdapter
from deepfreeze.state.dtypes import logical_form


@pytest.mark.parametrize("name", ["object", "O", "|O", "O8", "f4,O", "<V8", "S0", "<U99999999999"])
def test_a_dtype_outside_the_closed_list_is_corrupt(name: str) -> None:
    with pytest.raises(df.CorruptError):
        numpy_adapter.numpy_dtype(name)


def test_a_forged_object_view_makes_no_pointers(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forged(tensor: torch.Tensor, offset: int) -> dict[str, Any]:
        return {"shape": [1], "stride": [1], "offset": 0, "dtype": "object"}

    monkeypatch.setattr(torch_tensors, "_view_node", forged)
    array = np.full(8, 0x4141414141414141)
    save(ckpt, 1, {"a": array, "b": array[2:4]})
    with pytest.raises(df.CorruptError, match="object"):
        ckpt.load(1)


@pytest.mark.parametrize(
    ("shape", "stride", "offset"),
    [([4], [1], 1), ([5], [1], 0), ([2], [4], 0), ([2], [1], -1), ([-1], [1], 0), ([2], [-1], 1)],
)
def test_a_forged_view_stays_in_its_entry(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch, shape: Any, stride: Any, offset: int
) -> None:
    view = {"shape": shape, "stride": stride, "offset": offset, "dtype": "float32"}
    monkeypatch.setattr(torch_tensors, "_view_node", lambda *_: view)
    base = torch.arange(4.0)
    save(ckpt, 1, {"a": base, "b": base[1:3]})
    with pytest.raises(df.CorruptError, match="b: a view beyond its entry"):
        ckpt.load(1)


LIES = [
    ("F32", (4, 1), "uint8"), ("U8", (4, 4), "complex64"), ("U8", (4, 4), "float32"),
    ("U8", (4, 4), "float8_e8m0fnu"),
]  # fmt: skip


@pytest.mark.parametrize("lie", LIES, ids=str)
@pytest.mark.parametrize("live", [True, False])
def test_a_logical_dtype_that_does_not_fit_is_corrupt(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch, lie: Any, live: bool
) -> None:
    monkeypatch.setattr(torch_tensors, "NATIVE", {})  # so that it asks for each form
    monkeypatch.setattr(torch_tensors, "stored_form", lambda *_: lie)
    save(ckpt, 1, {"x": torch.ones(4)})
    monkeypatch.undo()
    state = {"x": torch.empty(4, dtype=getattr(torch, lie[2]))}
    with pytest.raises(df.CorruptError):
        ckpt.restore(state, step=1) if live else ckpt.load(1)


def test_a_form_is_what_stored_form_gives() -> None:
    assert logical_form("F32", (3, 2), "complex64") == ("complex64", (3,))
    for stored, shape, logical in [("F32", (3,), "complex64"), ("F64", (3, 2), "complex64"),
                                   ("X9", (3,), ""), ("U8", (), "float8_e8m0fnu")]:  # fmt: skip
        with pytest.raises(df.CorruptError):
            logical_form(stored, shape, logical)
    with pytest.raises(df.CorruptError, match="4 bytes, 16"):
        TorchAdapter().allocate("uint8", (4,), 16)
