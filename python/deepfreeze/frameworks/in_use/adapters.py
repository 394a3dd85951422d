"""The adapters of the frameworks that the program has imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from deepfreeze.base.imported import imported
from deepfreeze.frameworks.absent import AbsentAdapter
from deepfreeze.frameworks.stateful import StatefulAdapter
from deepfreeze.state.contracts import Adapter
from deepfreeze.state.tree import Node

if TYPE_CHECKING:
    from deepfreeze.frameworks.keras.adapter import EncodeGroup
    from deepfreeze.frameworks.tensorflow.adapter import TensorFlowAdapter


def adapters_in_use() -> list[Adapter]:
    """The frameworks' adapters, then those for any object and for frameworks that are absent."""
    found: list[Adapter] = []
    share: Callable[[Any, Node, str], bool] | None = None
    stateful = StatefulAdapter()
    tensorflow = _of_tensorflow() if imported("tensorflow") else None
    if imported("keras"):  # before its backends, which would claim its models too
        from deepfreeze.frameworks.keras.adapter import KerasAdapter

        found.append(KerasAdapter(None if tensorflow is None else tensorflow.encode_group))
    if tensorflow is not None:
        found.append(tensorflow)
    if imported("torch"):
        from deepfreeze.frameworks.torch.adapter import TorchAdapter
        from deepfreeze.frameworks.torch.saved_bits import load_exactly

        found.append(torch := TorchAdapter())
        share, stateful = torch.share_array, StatefulAdapter(load_exactly)
    if imported("numpy"):
        from deepfreeze.frameworks.numpy import NumpyAdapter

        found.append(NumpyAdapter(share))
    if imported("chainer"):
        from deepfreeze.frameworks.chainer.adapter import ChainerAdapter

        found.append(ChainerAdapter())
    if imported("jax"):
        from deepfreeze.frameworks.jax.adapter import JaxAdapter

        found.append(JaxAdapter())
    return [*found, stateful, AbsentAdapter()]


def _of_tensorflow() -> TensorFlowAdapter:
    from deepfreeze.frameworks.tensorflow.adapter import TensorFlowAdapter

    return TensorFlowAdapter(_of_keras if imported("keras") else None)


def _of_keras(value: object, encode_group: EncodeGroup) -> Adapter | None:
    """Keras's adapter, if the value is an object of Keras."""
    from deepfreeze.frameworks.keras.adapter import KerasAdapter

    adapter = KerasAdapter(encode_group)
    return adapter if adapter.claims(value) else None


def environment() -> dict[str, str]:
    """The versions and settings that a checkpoint records."""
    import platform

    found = {"python": platform.python_version()}
    for adapter in adapters_in_use():
        found.update(adapter.environment())
    return found
