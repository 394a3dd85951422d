"""PyTorch as in torch_training.py, with all tensors on two devices of the fake driver."""

from __future__ import annotations

from .fake_devices import FakeDevices
from .torch_training import Own as OnHost
from .training import SEED, Options

devices = FakeDevices(SEED)


class Own(OnHost):
    """The loop of OnHost; tensors are changed after the work that the streams wait for."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        # Runs after the checkpointer's own hook, which makes the streams wait.
        self.optim.register_step_pre_hook(lambda *_: devices.wait())

    def update(self, step: int) -> None:
        devices.wait()  # batch norm changes buffers that nothing guards
        super().update(step)

    def close(self) -> None:
        super().close()
        devices.wait()
        if complaints := devices.complaints():
            raise AssertionError("; ".join(complaints))
