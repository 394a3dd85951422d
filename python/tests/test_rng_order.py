"""Random generators are saved and restored after all other objects."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from failing import Stateful
from testkit import save

import deepfreeze as df


def test_an_object_that_draws_when_it_is_loaded_shifts_no_stream(ckpt: df.Checkpointer) -> None:
    def draw() -> None:
        torch.rand(3)
        random.random()
        np.random.random()

    state = {"rng": df.RNG(), "own": Stateful(load=draw)}
    save(ckpt, 1, state)
    expected = (torch.rand(1).item(), random.random(), np.random.random())
    ckpt.restore(state)
    assert (torch.rand(1).item(), random.random(), np.random.random()) == expected


def test_a_state_dict_that_draws_is_part_of_what_is_saved(ckpt: df.Checkpointer) -> None:
    state = {"rng": df.RNG(), "own": Stateful(give=random.random)}
    save(ckpt, 1, state)
    expected = random.random()
    ckpt.restore({"rng": df.RNG(), "own": Stateful()})
    assert random.random() == expected


@pytest.mark.parametrize("seed", [7, [1, 2, 3], None])
def test_children_of_a_numpy_generator_go_on_as_before(ckpt: df.Checkpointer, seed: Any) -> None:
    saved, live = np.random.default_rng(seed), np.random.default_rng(99)
    saved.spawn(2)
    live.spawn(5)
    save(ckpt, 1, {"rng": df.RNG(saved)})
    ckpt.restore({"rng": df.RNG(live)})
    one, other = saved.spawn(1)[0], live.spawn(1)[0]
    assert one.integers(1 << 60, size=4).tolist() == other.integers(1 << 60, size=4).tolist()
    assert saved.random() == live.random()
