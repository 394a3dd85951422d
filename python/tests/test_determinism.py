"""df.determinism(): its settings, its advice, and runs that repeat themselves with it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import deepfreeze as df

# The functions that torch hands to MKL's vector math (aten/src/ATen/cpu/vml.h).
VECTOR_MATH = "acos asin atan cos erf erfc erfinv exp log log10 log2 sin sqrt tan tanh trunc"


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    strict, benchmark = (
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.cudnn.benchmark,
    )
    yield
    torch.use_deterministic_algorithms(strict)
    torch.backends.cudnn.benchmark = benchmark


def drawn() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def test_seeds_every_generator() -> None:
    df.determinism(7)
    first = drawn()
    assert drawn() != first
    df.determinism(7)
    assert drawn() == first
    df.determinism(8)
    assert all(a != b for a, b in zip(drawn(), first, strict=True))


def test_what_can_not_repeat_itself_raises() -> None:
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.benchmark = True
    report = df.determinism(7)
    assert torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cudnn.benchmark
    assert any("use_deterministic_algorithms" in text for text in report.done)
    assert any(f"{torch.get_num_threads()} threads" in text for text in report.left)
    assert str(report).count("\n") == len(report.done) + len(report.left) - 1


class Called(TorchDispatchMode):
    """The operations that torch is asked to compute, with type and number of elements."""

    def __init__(self) -> None:
        super().__init__()
        self.all: set[tuple[str, torch.dtype, int]] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if args and isinstance(args[0], torch.Tensor):
            self.all.add((func.overloadpacket.__name__, args[0].dtype, args[0].numel()))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mkl", [True, False])
def test_one_thread_makes_the_first_calls_of_vector_math(
    monkeypatch: pytest.MonkeyPatch, mkl: bool
) -> None:
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: mkl)
    with Called() as called:
        report = df.determinism(7)
    for name in VECTOR_MATH.split():
        for kind in (torch.float32, torch.float64):
            assert ((name, kind, 1) in called.all) == mkl, name
    assert all(elements == 1 for name, _, elements in called.all if name == "sqrt")
    assert any("by one thread" in text for text in report.done) == mkl


@pytest.mark.parametrize("seed", [-1, 1 << 32, 1.0, True, None, "7"])
def test_refuses_what_is_no_seed(seed: object) -> None:
    before = random.getstate()
    with pytest.raises(ValueError, match="seed"):
        df.determinism(seed)  # type: ignore[arg-type]
    assert random.getstate() == before


@pytest.mark.parametrize(("hash_seed", "left"), [("0", False), ("random", True), (None, True)])
def test_says_what_only_the_environment_can_set(hash_seed: str | None, left: bool) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONHASHSEED"}
    if hash_seed is not None:
        environment["PYTHONHASHSEED"] = hash_seed
    program = (
        "import sys, deepfreeze as df; report = df.determinism(1); "
        "print('PYTHONHASHSEED' in str(report), 'torch' in sys.modules, 'torch' in str(report))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == [str(left), "False", "False"], "it imports no framework itself"


class FakeCuda:
    """The part of torch.cuda that determinism() asks, on a machine with a device."""

    def __init__(self, begun: bool) -> None:
        self._begun = begun

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return self._begun


@pytest.mark.parametrize(
    ("setting", "begun", "said"),
    [
        (None, False, ""),
        (":4096:8", True, ""),
        (":16:8", False, ""),
        (None, True, "CUDA has begun already"),
        (":8:1", False, "it is :8:1"),
    ],
)
def test_cublas(
    monkeypatch: pytest.MonkeyPatch, setting: str | None, begun: bool, said: str
) -> None:
    name = "CUBLAS_WORKSPACE_CONFIG"
    monkeypatch.setenv(name, setting or "")  # and as it was, afterwards
    if setting is None:
        del os.environ[name]
    monkeypatch.setattr(torch, "cuda", FakeCuda(begun))
    monkeypatch.setattr(torch, "manual_seed", lambda _: None)  # it asks the real CUDA
    left = [text for text in df.determinism(1).left if name in text]
    assert len(left) == (1 if said else 0)
    assert all(said in text for text in left)
    if not said:
        assert os.environ[name] == (setting or ":4096:8")
