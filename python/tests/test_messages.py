"""Text for people stays readable, whatever a state's names are."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from testkit import data_file, data_start, flip, save

import deepfreeze as df
from deepfreeze.base.names import shortened, shown

LONG = "k" * 100_000
SPACED = "k " * 50_000
LONGEST = "k" * 4_000  # of a tensor
MESSAGE_MAX = 4_001


@pytest.mark.parametrize("name", [LONGEST, "k " * 2_000])
@pytest.mark.parametrize(
    ("saved", "live"),
    [
        (1, None),
        (torch.ones(3), torch.ones(4)),
        (torch.ones(3), np.ones(3)),
        ([torch.ones(1)], (torch.ones(1),)),
        (torch.ones(3), [torch.ones(3), 5]),
    ],
)
def test_mismatches(ckpt: df.Checkpointer, name: str, saved: Any, live: Any) -> None:
    save(ckpt, 1, {name: saved, "w": torch.ones(1)})
    state = {"w": torch.ones(1)} if live is None else {name: live, "w": torch.ones(1)}
    with pytest.raises(df.MismatchError) as caught:
        ckpt.restore(state)
    assert len(str(caught.value)) < MESSAGE_MAX
    assert "k...(" in str(caught.value).replace(" ...", "...")


@pytest.mark.parametrize("name", [LONG, SPACED])
def test_what_can_not_be_stored(ckpt: df.Checkpointer, name: str) -> None:
    with pytest.raises(df.EncodeError) as caught:
        ckpt.save(1, {name: object()})
    assert len(str(caught.value)) < MESSAGE_MAX


def test_a_tensor_with_too_long_a_name(ckpt: df.Checkpointer) -> None:
    with pytest.raises(df.CheckpointError, match="100000 bytes, and may have 4096: give") as caught:
        ckpt.save(1, {LONG: torch.ones(3)})
    assert len(str(caught.value)) < MESSAGE_MAX


def test_what_does_not_verify(ckpt: df.Checkpointer, caplog: pytest.LogCaptureFixture) -> None:
    save(ckpt, 1, {LONGEST: torch.ones(30_000)})
    save(ckpt, 2, {LONGEST: torch.ones(30_000)})
    file = data_file(ckpt.path, 2)
    flip(file, data_start(file) + 9)
    (fault,) = ckpt.verify()
    assert fault.tensors == [LONGEST]
    assert len(fault.cause) < MESSAGE_MAX
    with caplog.at_level(logging.INFO, "deepfreeze"):
        assert ckpt.restore({LONGEST: torch.zeros(30_000)}) == 1
    assert max(len(record.getMessage()) for record in caplog.records) < MESSAGE_MAX


def test_metrics_and_tags(ckpt: df.Checkpointer) -> None:
    metrics: Any = {"loss": "x" * 100_000}
    with pytest.raises(TypeError) as caught:
        ckpt.save(1, {"n": 1}, metrics=metrics)
    tags: Any = {"of": list(range(100_000))}
    with pytest.raises(TypeError) as also:
        ckpt.save(1, {"n": 1}, tags=tags)
    assert len(str(caught.value)) < MESSAGE_MAX
    assert len(str(also.value)) < MESSAGE_MAX


def test_keys_that_choose_nothing(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"w": torch.ones(1)})
    with pytest.raises(df.MismatchError) as caught:
        ckpt.restore({"w": torch.ones(1)}, keys=[SPACED])
    assert len(str(caught.value)) < MESSAGE_MAX


def test_what_is_short_stays_as_it_is() -> None:
    text = "open /data/run:  no such\tfile " * 20
    assert shortened(text) == text
    assert shown("") == "the state"
    assert shown("a" * 300) == "a" * 300
    assert shown("a" * 301) == "a" * 150 + "...(101 characters left out)..." + "a" * 50
