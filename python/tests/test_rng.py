import random
from typing import Any

import numpy as np
import pytest
import torch
from testkit import save

import deepfreeze as df


def draw() -> tuple[Any, ...]:
    return (
        random.random(),
        random.gauss(0, 1),
        np.random.standard_normal(3).tolist(),
        torch.rand(3).tolist(),
        torch.randn(5).tolist(),
    )


def test_the_global_generators_go_on_as_before(ckpt: df.Checkpointer) -> None:
    random.gauss(0, 1)  # leaves a second value waiting
    np.random.standard_normal()
    rng = df.RNG()
    save(ckpt, 1, {"rng": rng})
    expected = draw()
    draw()
    assert ckpt.restore({"rng": df.RNG()}) == 1
    assert draw() == expected


def test_own_generators_go_on_as_before(ckpt: df.Checkpointer) -> None:
    def make(seed: int) -> tuple[Any, Any, Any, Any, Any]:
        own = random.Random(seed)
        pcg, philox = np.random.default_rng(seed), np.random.Generator(np.random.Philox(seed))
        mersenne = np.random.Generator(np.random.MT19937(seed))
        return own, pcg, philox, mersenne, torch.Generator().manual_seed(seed)

    def draw_own(own: Any, pcg: Any, philox: Any, mersenne: Any, generator: Any) -> list[Any]:
        numpy_draws = [g.standard_normal(4).tolist() for g in (pcg, philox, mersenne)]
        return [own.random(), numpy_draws, torch.rand(4, generator=generator).tolist()]

    saved, live = make(1), make(2)
    draw_own(*saved)
    save(ckpt, 1, {"rng": df.RNG(*saved[:4], loader=saved[4])})
    ckpt.restore({"rng": df.RNG(*live[:4], loader=live[4])})
    assert draw_own(*live) == draw_own(*saved)


def test_the_same_generators_must_be_there(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"rng": df.RNG(random.Random(1))})
    with pytest.raises(df.MismatchError, match="RNG"):
        ckpt.restore({"rng": df.RNG()})


def test_what_is_no_generator_is_refused() -> None:
    with pytest.raises(TypeError, match="seed"):
        df.RNG(seed=5)
