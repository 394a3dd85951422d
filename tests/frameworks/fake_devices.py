"""Torch's CPU tensors as if they lay on CUDA devices: the fake driver copies them.

tests/support/fake_driver has the driver. Computations are done at once and not on a stream, so a
test that changes a tensor waits for the streams first: a device's work would do so.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

import torch

from deepfreeze.frameworks.torch import device as torch_device
from deepfreeze.frameworks.torch import tensors as torch_tensors
from deepfreeze.state.entry import HOST

LIBRARY = Path(__file__).resolve().parents[2] / "build/release/tests/support/libdf_fake_driver.so"
DEVICES = 2
_REPLACED = {
    torch_device: ("ordinal_of", "stream_of", "streams_of", "is_capturing"),
    torch_tensors: ("ordinal_of",),
}


class FakeDevices:
    """For a whole process: the engine looks for a driver once."""

    def __init__(self, seed: int = 0) -> None:
        if not LIBRARY.exists():
            raise FileNotFoundError(f"{LIBRARY}: `make build` makes it")
        os.environ["DEEPFREEZE_CUDA_LIBRARY"] = str(LIBRARY)
        self._library = ctypes.CDLL(str(LIBRARY))
        self._library.fake_driver_make_stream.restype = ctypes.c_size_t
        self._library.fake_driver_synchronize.argtypes = [ctypes.c_size_t]
        self._library.fake_driver_fill.argtypes = [
            ctypes.c_size_t, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_uint,
        ]  # fmt: skip
        self._library.fake_driver_set_delays.argtypes = [ctypes.c_uint64, ctypes.c_uint]
        self._library.fake_driver_reset()
        self._library.fake_driver_all_memory(1)
        self._library.fake_driver_set_delays(seed, 300)
        self.streams = [int(self._library.fake_driver_make_stream(i)) for i in range(DEVICES)]
        self.captures_graph = False
        self._real = {
            (module, name): getattr(module, name)
            for module, names in _REPLACED.items()
            for name in names
        }
        for module, name in self._real:
            setattr(module, name, getattr(self, f"_{name}"))

    def leave(self) -> None:
        """Tensors are on the host again."""
        for (module, name), function in self._real.items():
            setattr(module, name, function)

    def _ordinal_of(self, tensor: torch.Tensor) -> int | None:
        """Vectors are on the second device; single numbers stay, as optimizers' step counts do."""
        if not tensor.is_cpu or tensor.numel() < 2:
            return HOST
        return 1 if tensor.dim() == 1 else 0

    def _stream_of(self, ordinal: int) -> int:
        return 0 if ordinal == HOST else self.streams[ordinal]

    def _streams_of(self, ordinals: Iterable[int]) -> list[tuple[int, int]]:
        return [(ordinal, self._stream_of(ordinal)) for ordinal in sorted(ordinals)]

    def _is_capturing(self) -> bool:
        return self.captures_graph

    def wait(self) -> None:
        """As the work that is given to the streams from here on would."""
        for stream in self.streams:
            self._library.fake_driver_synchronize(stream)

    def fill(self, tensor: torch.Tensor, value: int, millis: int = 20) -> None:
        """Has its stream set each byte of the tensor, some time."""
        stream = self._stream_of(self._ordinal_of(tensor) or 0)
        self._library.fake_driver_fill(stream, tensor.data_ptr(), tensor.nbytes, value, millis)

    def hold(self) -> None:
        """The engine's streams copy nothing before let_go()."""
        self._library.fake_driver_hold()

    def let_go_in(self, millis: int) -> None:
        """Runs without the GIL: a thread that waits for the copies may hold it."""
        self._library.fake_driver_let_go_in(millis)

    def let_go(self) -> None:
        self._library.fake_driver_let_go()

    def calls(self, name: str) -> int:
        """How often a function of the driver was called."""
        return int(self._library.fake_driver_calls(name.encode()))

    def complaints(self) -> list[str]:
        """The rules that were broken, and the leftovers once all engines are closed."""
        text = ctypes.create_string_buffer(4096)
        self._library.fake_driver_complaints(text, len(text))
        return text.value.decode().splitlines()
