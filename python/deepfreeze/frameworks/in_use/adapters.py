"""The adapters of the frameworks that the program has imported, and of those that it has not."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from deepfreeze.frameworks.stateful import StatefulAdapter
from deepfreeze.state.contracts import Adapter, Filler, Remake, Sink, Source
from deepfreeze.state.dtypes import Shape
from deepfreeze.state.entry import Buffer
from deepfreeze.state.memo import Memo
from deepfreeze.state.tree import Node

if TYPE_CHECKING:
    from deepfreeze.frameworks.keras.adapter import EncodeGroup
    from deepfreeze.frameworks.tensorflow.adapter import TensorFlowAdapter

_FRAMEWORKS = ("tensorflow", "keras", "torch", "numpy", "chainer", "jax")


def adapters_in_use(memo: Memo | None = None) -> list[Adapter]:
    """The frameworks' adapters, then those for any object and for frameworks that are absent.

    `memo`: of the last walk, for a save.
    """
    used = {name for name in _FRAMEWORKS if sys.modules.get(name) is not None}
    found: list[Adapter] = []
    share: Callable[[Any, Node, str], bool] | None = None
    stateful: Adapter | None = None
    tensorflow = _of_tensorflow() if "tensorflow" in used else None
    if "keras" in used:  # before its backends, which would claim its models too
        from deepfreeze.frameworks.keras.adapter import KerasAdapter

        found.append(KerasAdapter(None if tensorflow is None else tensorflow.encode_group))
    if tensorflow is not None:
        found.append(tensorflow)
    if "torch" in used:
        from deepfreeze.frameworks.torch.adapter import TorchAdapter
        from deepfreeze.frameworks.torch.saved_bits import load_exactly

        found.append(torch := TorchAdapter(None if memo is None else memo.recalls))
        share, stateful = torch.share_array, StatefulAdapter(load_exactly)
    if "numpy" in used:
        from deepfreeze.frameworks.numpy import NumpyAdapter

        found.append(NumpyAdapter(share))
    if "chainer" in used:
        from deepfreeze.frameworks.chainer.adapter import ChainerAdapter

        found.append(ChainerAdapter())
    if "jax" in used:
        from deepfreeze.frameworks.jax.adapter import JaxAdapter

        found.append(JaxAdapter())
    return [*found, stateful or StatefulAdapter(), AbsentAdapter()]


def _of_tensorflow() -> TensorFlowAdapter:
    from deepfreeze.frameworks.tensorflow.adapter import TensorFlowAdapter

    return TensorFlowAdapter(_of_keras if sys.modules.get("keras") is not None else None)


def _of_keras(value: object, encode_group: EncodeGroup) -> Adapter | None:
    """Keras's adapter, if the value is an object of Keras."""
    from deepfreeze.frameworks.keras.adapter import KerasAdapter

    adapter = KerasAdapter(encode_group)
    return adapter if adapter.claims(value) else None


def environment_of(adapters: Sequence[Adapter]) -> dict[str, str]:
    """The versions and settings that a checkpoint records, with adapters_in_use()."""
    found = {"python": platform.python_version()}
    for adapter in adapters[:-2]:  # the last two are of no framework
        found.update(adapter.environment())
    return found


class AbsentAdapter(Adapter):
    """The last of all adapters: it claims no live value."""

    def claims(self, value: object) -> bool:
        return False

    def encode(self, value: Any, path: str, capture: Sink) -> Node:
        raise NotImplementedError

    def match(self, node: Node, live: Any, path: str, plan: Filler) -> Remake:
        raise NotImplementedError

    def allocate(self, name: str, shape: Shape, size: int) -> Buffer | None:
        from deepfreeze.frameworks.numpy import allocate

        return allocate(size)

    def decodes(self, tag: str, node: Node) -> bool:
        return tag in ("array", "np", "tensor", "size", "dtype", "device")

    def decode(self, tag: str, node: Node, path: str, plan: Source) -> object:
        if tag == "size":
            return tuple(int(size) for size in node["v"])
        if tag in ("dtype", "device"):
            return str(node["v"])
        from deepfreeze.frameworks.numpy import NumpyAdapter

        return NumpyAdapter().decode(tag, node, path, plan)
