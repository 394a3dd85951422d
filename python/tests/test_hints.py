"""Messages about values that people try to save, with the values that they may save instead."""

import enum
import random
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from testkit import round_trip, save
from torch.utils.data import DataLoader

import deepfreeze as df


class Phase(enum.Enum):
    WARM = 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.Generator(), r"store a generator as df\.RNG\(generator\)"),
        (np.random.default_rng(0), r"store a generator as df\.RNG\(generator\)"),
        (random.Random(0), r"store a generator as df\.RNG\(generator\)"),
        (DataLoader([1, 2]), "torchdata's StatefulDataLoader has a state_dict"),
        (Phase.WARM, r"store its \.value"),
    ],
    ids=["torch", "numpy", "python", "loader", "enum"],
)
def test_the_message_says_what_to_store_instead(
    ckpt: df.Checkpointer, value: Any, text: str
) -> None:
    with pytest.raises(df.EncodeError, match=rf"a\.b: .*{text}"):
        ckpt.save(1, {"a": {"b": value}})


def test_a_generator_comes_back_as_the_hint_says(ckpt: df.Checkpointer) -> None:
    stored, live = torch.Generator().manual_seed(5), torch.Generator()
    save(ckpt, 1, {"g": df.RNG(stored)})
    expected = torch.rand(3, generator=stored)
    ckpt.restore({"g": df.RNG(live)})
    assert torch.equal(torch.rand(3, generator=live), expected)


def test_a_file_in_memory_comes_back(ckpt: df.Checkpointer) -> None:
    """As Transformer Engine gives for the extra state of its modules."""
    file = BytesIO(b"abc" * 5000)
    file.seek(7)
    found = round_trip(ckpt, {"x": file})["x"]
    assert (type(found), found.getvalue(), found.tell()) == (BytesIO, file.getvalue(), 7)
    live = {"x": BytesIO()}
    ckpt.restore(live)
    assert live["x"].getvalue() == file.getvalue()


@pytest.mark.parametrize("step", ["7", 5.0, None])
def test_a_step_that_is_no_whole_number_is_named(ckpt: df.Checkpointer, step: Any) -> None:
    with pytest.raises(TypeError, match=rf"step: a {type(step).__name__} is no whole number"):
        ckpt.save(step, {"x": 1})
