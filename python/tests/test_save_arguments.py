"""The arguments of save(), and a capture for which memory is refused."""

import gc
from typing import Any

import numpy as np
import pytest
import torch
from failing import Stateful, fail
from testkit import save

import deepfreeze as df
from deepfreeze.restoring import matching, restore_plan
from deepfreeze.saving import capture as capture_module


@pytest.mark.parametrize("value", [None, "high", [1]])
def test_a_metric_that_is_no_number_is_named(ckpt: df.Checkpointer, value: Any) -> None:
    with pytest.raises(TypeError, match=r"'val_loss'.*no number"):
        ckpt.save(1, {"x": 1}, metrics={"acc": 1, "val_loss": value})
    save(ckpt, 1, {"x": 1}, metrics={"acc": np.float32(1), "loss": torch.tensor(0.5)})


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_want_of_memory_during_capture_fails_the_handle(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(capture_module, "Capture", lambda *_: fail(error)())
        handle = ckpt.save(1, {"x": torch.ones(4)})
    assert handle is not None
    with pytest.raises(df.NoSpaceError, match="capture"):
        handle.wait(timeout=0)
    assert ckpt.failed_saves == 1
    handle = ckpt.save(2, {"own": Stateful(give=fail(MemoryError()))})
    assert handle is not None
    assert ckpt.failed_saves == 2
    save(ckpt, 3, {"x": torch.ones(4)})


@pytest.mark.parametrize("enabled", [True, False])
def test_the_cyclic_collector_rests_during_capture_and_match(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch, enabled: bool
) -> None:
    seen = []
    state = {"own": Stateful(give=lambda: seen.append(gc.isenabled()))}
    real = matching.match_state

    def watched(*arguments: Any) -> None:
        seen.append(gc.isenabled())
        real(*arguments)

    monkeypatch.setattr(restore_plan, "match_state", watched)
    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        save(ckpt, 1, state)
        ckpt.restore(state)
        with pytest.raises(df.EncodeError):
            ckpt.save(2, {"x": object()})
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if was else gc.disable)()
    assert seen == [False, False]
