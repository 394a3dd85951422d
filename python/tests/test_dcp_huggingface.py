"""torch's own reader of safetensors directories on the data files of a checkpoint."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from dcp_kit import assert_equal, blank, quiet, save
from testkit import attempt_of
from torch.distributed.checkpoint import HuggingFaceStorageReader

import deepfreeze as df


def state_of() -> dict[str, Any]:
    torch.manual_seed(3)
    kinds = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
    state = {f"model.{kind}".replace("torch.", ""): torch.randn(7, 5).to(kind) for kind in kinds}
    state["model.count"] = torch.tensor(5)
    state["model.empty"] = torch.empty(0, 3)
    return state


@pytest.mark.parametrize("saved_by", ["dcp", "checkpointer"])
def test_tensors_that_are_whole_in_one_file(run: Path, saved_by: str) -> None:
    state = state_of()
    if saved_by == "dcp":
        save(state, run)
    else:
        with df.Checkpointer(run) as ckpt:
            handle = ckpt.save(1, {"model": {key[6:]: value for key, value in state.items()}})
            assert handle is not None
            handle.wait()
    found = blank(state)
    with quiet():
        dcp.load(found, storage_reader=HuggingFaceStorageReader(str(attempt_of(run, 1))))
    assert_equal(found, state)
