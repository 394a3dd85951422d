"""Makes a run repeat itself bit for bit, as far as its frameworks allow."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_SEED_MAX = (1 << 32) - 1  # NumPy takes no more
_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"
_CUBLAS_SETTINGS = (":4096:8", ":16:8")  # those with which cuBLAS repeats itself
# Functions that torch on a CPU leaves to MKL's vector library.
_VECTOR_MATH = (
    "acos", "asin", "atan", "cos", "erf", "erfc", "erfinv", "exp", "log", "log10", "log2", "sin",
    "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip


@dataclass
class Determinism:
    """The settings that determinism() made, and those that it can't make; str() shows both."""

    done: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"set: {text}" for text in self.done]
        return "\n".join([*lines, *(f"left to you: {text}" for text in self.left)])


def determinism(seed: int) -> Determinism:
    """Seeds all frameworks that the program has imported, and makes them deterministic.

    `seed` is 0 to 2^32 - 1. Call it once, after the imports and before anything is built: some
    settings have no effect later. From then on operations of torch and TensorFlow that can't repeat
    themselves raise. Training gets slower if its fastest algorithms are not deterministic. To
    resume a run, the state of its generators is needed as well: put df.RNG() into the state that
    is saved, and call this before restore(), in the resumed process too.

    ValueError for a seed that NumPy would not take. Not for use beside a running training.
    """
    if type(seed) is not int or not 0 <= seed <= _SEED_MAX:
        raise ValueError(f"determinism: seed {seed!r} is not a whole number from 0 to 2^32 - 1")
    report = Determinism()
    _set_python(seed, report)
    for name, set_up in _FRAMEWORKS.items():
        module = sys.modules.get(name)
        if module is not None:
            set_up(module, seed, report)
    return report


def _set_python(seed: int, report: Determinism) -> None:
    random.seed(seed)
    report.done.append(f"random.seed({seed})")
    if os.environ.get("PYTHONHASHSEED", "random") == "random":
        report.left.append(
            "PYTHONHASHSEED: sets of str have another order in each process; start Python with "
            "PYTHONHASHSEED=0 if that order matters"
        )


def _set_numpy(numpy: Any, seed: int, report: Determinism) -> None:
    numpy.random.seed(seed)
    report.done.append(f"numpy.random.seed({seed})")
    report.left.append("numpy.random.default_rng(): give each one a seed")


def _set_torch(torch: Any, seed: int, report: Determinism) -> None:
    torch.manual_seed(seed)
    report.done.append(f"torch.manual_seed({seed}), of all devices")
    if torch.cuda.is_available():
        _set_cublas(torch, report)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    report.done.append("torch.use_deterministic_algorithms(True), cudnn.benchmark off")
    if torch.backends.mkl.is_available():
        _call_vector_math(torch, report)
    report.left.append(
        f"torch sums with {torch.get_num_threads()} threads: use as many in each run "
        "(torch.set_num_threads)"
    )
    report.left.append("DataLoader: give it and its sampler a generator, and workers a seed")


def _call_vector_math(torch: Any, report: Determinism) -> None:
    """Calls each function once: if several threads call one first, a result may be less precise.

    A resumed process has its first calls in the middle of a training (pytorch issue 188792).
    """
    for kind in (torch.float32, torch.float64):
        half = torch.full((1,), 0.5, dtype=kind, device="cpu")  # one element: one thread
        for name in _VECTOR_MATH:
            getattr(torch, name)(half)
    report.done.append("MKL's vector functions: each called once, by one thread")


def _set_cublas(torch: Any, report: Determinism) -> None:
    setting = os.environ.get(_CUBLAS)
    if setting in _CUBLAS_SETTINGS:
        return
    if setting is None and not torch.cuda.is_initialized():
        os.environ[_CUBLAS] = _CUBLAS_SETTINGS[0]
        report.done.append(f"{_CUBLAS}={_CUBLAS_SETTINGS[0]}")
        return
    reason = "CUDA has begun already" if setting is None else f"it is {setting}"
    report.left.append(f"{_CUBLAS}: {reason}; start Python with {_CUBLAS}={_CUBLAS_SETTINGS[0]}")


def _set_tensorflow(tensorflow: Any, seed: int, report: Determinism) -> None:
    tensorflow.random.set_seed(seed)
    tensorflow.config.experimental.enable_op_determinism()
    report.done.append(f"tensorflow.random.set_seed({seed}), enable_op_determinism()")
    threading = tensorflow.config.threading
    if 0 in (
        threading.get_intra_op_parallelism_threads(),
        threading.get_inter_op_parallelism_threads(),
    ):
        report.left.append(
            "TensorFlow takes as many threads as there are cores: set both of "
            "tf.config.threading to the same numbers in each run"
        )


def _set_keras(keras: Any, seed: int, report: Determinism) -> None:
    keras.utils.set_random_seed(seed)
    report.done.append(f"keras.utils.set_random_seed({seed})")
    report.left.append("fit(shuffle=True) draws from generators that can't all be saved")


def _set_jax(jax: Any, seed: int, report: Determinism) -> None:
    report.left.append(f"JAX has no generator of its own: begin with jax.random.key({seed})")
    if jax.default_backend() == "gpu":
        report.left.append("XLA: start Python with XLA_FLAGS=--xla_gpu_deterministic_ops=true")


def _set_chainer(chainer: Any, seed: int, report: Determinism) -> None:
    chainer.global_config.cudnn_deterministic = True
    chainer.global_config.autotune = False
    report.done.append("chainer.global_config: cudnn_deterministic, no autotune")
    report.left.append("MultiprocessIterator does not repeat itself: use SerialIterator")


def _set_cupy(cupy: Any, seed: int, report: Determinism) -> None:
    cupy.random.seed(seed)
    report.done.append(f"cupy.random.seed({seed})")


_FRAMEWORKS: dict[str, Callable[[Any, int, Determinism], None]] = {
    "numpy": _set_numpy,
    "torch": _set_torch,
    "tensorflow": _set_tensorflow,
    "keras": _set_keras,
    "jax": _set_jax,
    "chainer": _set_chainer,
    "cupy": _set_cupy,
}
