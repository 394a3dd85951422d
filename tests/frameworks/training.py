"""The interface that conformance.py needs: a small training, as a framework's users write it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Protocol

STEPS = 12  # of a whole training
# Each is NAME_training.py, with a class of that Protocol called Own; the value is its import.
FRAMEWORKS = {
    "torch": "torch",
    "torch_device": "torch",
    "torch_cuda": "torch",
    "chainer": "chainer",
    "chainer_trainer": "chainer",
    "jax": "jax",
    "flax": "flax",
    "tensorflow": "tensorflow",
    "keras_tensorflow": "keras",
    "keras_torch": "keras",
    "keras_jax": "keras",
    "lightning": "lightning",
    "huggingface": "transformers",
    "accelerate": "accelerate",
}
# The modules that take a training's process its first seconds.
TORCH = ("torch", "torch._dynamo")
IMPORTS = {
    "torch": TORCH,
    "torch_device": TORCH,
    "torch_cuda": TORCH,
    "jax": ("jax", "optax"),
    "flax": ("jax", "optax", "flax.nnx"),
    "tensorflow": ("tensorflow",),
    "keras_tensorflow": ("tensorflow", "keras"),
    "keras_torch": (*TORCH, "keras"),
    "keras_jax": ("jax", "keras"),
    "lightning": (*TORCH, "lightning.pytorch"),
    "huggingface": (*TORCH, "transformers.trainer"),
    "accelerate": (*TORCH, "accelerate"),
    "trl": (*TORCH, "trl.trainer.sft_trainer", "trl.trainer.dpo_trainer"),
}
SEED = 20  # of data and their order: the same in every process


@dataclass(frozen=True)
class Options:
    """How one process makes the training."""

    run: Path | None = None  # None: nothing is saved
    seed: int = SEED  # of the first weights and of all random numbers: a resume must not need it
    wide: bool = False  # another architecture, into which nothing saved fits
    forget: str = ""  # one of Own.forgettable


class Training(Protocol):
    """Has more than 64 KiB in some arrays, less in others; random numbers in every step.

    One layer is frozen and one array is in two places of the model.
    """

    forgettable: ClassVar[tuple[str, ...]]  # parts of the state without which it ends otherwise
    misfit: ClassVar[str]  # a name in the error if a wide one is restored from one that isn't
    large_arrays: ClassVar[int]  # of 64 KiB or more, that one checkpoint stores

    def __init__(self, options: Options) -> None:
        """Before its first step. The checkpointer keeps all steps."""

    def restore(self, step: int | None) -> int:
        """Restores the newest step of the run, or `step`; returns it, 0 if there is none."""

    def train(self, until: int, saved: Callable[[int], None]) -> None:
        """Goes on to the end of step `until`, saving each.

        `saved` is called when the save of a step has begun, before anything changes again.
        """

    def digest(self) -> str:
        """SHA-256 of all that decides how it goes on, by the framework's own means."""

    def close(self) -> None:
        """Waits for saves in flight."""


def variables_of(framework: str) -> dict[str, str]:
    """Those that its modules read at their import."""
    backend = framework.removeprefix("keras_")
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "2"}
    return quiet if backend == framework else {"KERAS_BACKEND": backend, **quiet}


def missing(framework: str) -> str:
    """The framework that is missing here; empty if it can run."""
    if find_spec(FRAMEWORKS[framework]) is None:
        return f"LEFT OUT: no {FRAMEWORKS[framework]} here; `make frameworks` has all"
    if framework != "torch_cuda":
        return ""
    found = importlib.import_module("torch").cuda.is_available()
    return "" if found else "LEFT OUT: torch finds no CUDA device here"


def make(framework: str, options: Options) -> Training:
    """That framework's training; it is imported now."""
    module = importlib.import_module(f"tests.frameworks.{framework}_training")
    training: Training = module.Own(options)
    return training
