"""PyTorch as in torch_training.py, with all tensors on two devices of the fake driver."""

from __future__ import annotations

from .fake_devices import FakeDevices
from .torch_training import Own as OnHost
from .training import SEED, Options

devices = FakeDevices(SEED)


class Own(OnHost):
    """The same loop; what changes tensors does so behind what the streams wait for."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        # Behind the checkpointer's own hook, which gives the streams what they wait for.
        self.optim.register_step_pre_hook(lambda *_: devices.wait())

    def update(self, step: int) -> None:
        devices.wait()  # batch norm changes what nothing guards
        super().update(step)

    def close(self) -> None:
        super().close()
        devices.wait()
        if complaints := devices.complaints():
            raise AssertionError("; ".join(complaints))
