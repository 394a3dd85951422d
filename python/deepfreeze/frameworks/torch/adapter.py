"""torch: tensors, modules, optimizers and the small values that come with them.

The engine reads tensors of CUDA devices from the device itself: device.py.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from deepfreeze.base.names import shown
from deepfreeze.errors import CorruptError, EncodeError, MismatchError
from deepfreeze.frameworks.plain_numbers import is_number
from deepfreeze.frameworks.torch.memo import TensorMemo
from deepfreeze.frameworks.torch.module_match import match_module
from deepfreeze.frameworks.torch.modules import encode_module, own_buffers
from deepfreeze.frameworks.torch.optimizer_match import match_optimizer
from deepfreeze.frameworks.torch.optimizers import (
    ParameterNames,
    encode_optimizer,
    encode_state,
    has_other_state,
    hooks_of,
    is_optimizer,
    modules_in,
    unwrapped,
)
from deepfreeze.frameworks.torch.recall import (
    At,
    DictRecall,
    ModuleRecall,
    ObjectRecall,
    OptimizerRecall,
    Recalls,
    Seen,
)
from deepfreeze.frameworks.torch.registered import is_unknown_wrapper, match_registered
from deepfreeze.frameworks.torch.sharded import Box, is_sharded, shard_of
from deepfreeze.frameworks.torch.special import (
    SPECIAL_TAGS,
    SpecialForm,
    decode_special,
    encode_special,
    form_of_special,
    stored_form_of_special,
)
from deepfreeze.frameworks.torch.tensors import (
    dtype_from_name,
    dtype_name,
    empty,
    fill,
    is_special,
    pending,
    raw_bytes,
    store_all,
    tensor_of,
    write_number,
)
from deepfreeze.state.contracts import Adapter, Filler, Remake, Sink, Source
from deepfreeze.state.dtypes import Shape
from deepfreeze.state.encoder import TextMemo
from deepfreeze.state.entry import Buffer
from deepfreeze.state.kinds import form_text
from deepfreeze.state.registry import REGISTERED, RegisteredType
from deepfreeze.state.tree import Node, tag_of

_TENSORS = (torch.Tensor, torch.nn.Parameter)
_CLAIMED = (torch.Tensor, nn.Module, torch.Size, torch.dtype, torch.device)


class TorchAdapter(Adapter):
    """Stores each tensor's memory once and fills it in place."""

    numerous = _TENSORS
    remembers = True

    def __init__(self, last: Recalls | None = None) -> None:
        """`last`: the recalls of the last walk."""
        self._seen = Seen()
        are_registered = not REGISTERED.keys().isdisjoint(_TENSORS)  # then others encode them
        self._recalls = Recalls(None if are_registered else last)
        self._names: ParameterNames | None = None  # of a restore
        self._boxes: dict[int, Box] = {}  # of DTensors, by the id of their node

    def claims(self, value: object) -> bool:
        return isinstance(value, _CLAIMED) or is_optimizer(value)

    def encode(self, value: Any, path: str, capture: Sink) -> Node:
        if isinstance(value, torch.Tensor):
            return self._encode_tensor(value, path, capture)
        if isinstance(value, nn.Module):
            capture.refuse_inside(value, path)
            return self._encode_module(value, path, capture)
        if isinstance(value, Optimizer):
            capture.refuse_inside(value, path)
            return self._encode_optimizer(unwrapped(value), path, capture)
        if isinstance(value, torch.Size):
            return {"$": "size", "v": [int(size) for size in value]}
        if isinstance(value, torch.dtype):
            return {"$": "dtype", "v": dtype_name(value)}
        return {"$": "device", "v": str(value)}

    def _encode_tensor(self, value: torch.Tensor, path: str, capture: Sink) -> Node:
        if type(value) not in _TENSORS:
            return self._encode_shard(value, path)
        if value.is_meta:
            raise EncodeError(f"{shown(path)}: a tensor on the meta device has no data to store")
        if value.is_nested:
            raise EncodeError(f"{shown(path)}: a nested tensor can't be stored")
        node = self._seen.node_of(value, path)
        return encode_special(value, path, capture) if node is None else node

    def _encode_shard(self, value: torch.Tensor, path: str) -> Node:
        if is_lazy(value):
            raise EncodeError(f"{shown(path)}: a lazy parameter; run a forward pass, then save")
        try:
            shard = shard_of(value)
        except EncodeError as cause:
            raise EncodeError(f"{shown(path)}: {cause}") from cause
        if shard is None:
            raise EncodeError(
                f"{shown(path)}: a tensor of the type {type(value).__qualname__} can't be stored "
                "unless df.register_type knows the type"
            )
        node: Node = {"$": "tensor", "k": ""}
        if not shard.local.is_cpu:
            node["device"] = str(shard.local.device)
        self._boxes[id(node)] = shard.box
        self._seen.add(node, shard.local, path)
        return node

    def _encode_module(self, module: nn.Module, path: str, capture: Sink) -> Node:
        if capture.keys.rank is not None:
            own_buffers(module, path, capture)
        at = len(self._seen), path
        recall = self._recalls.last(at)
        again = recall.again(module) if isinstance(recall, ModuleRecall) else None
        if again is not None:
            return self._recalled(at, *again)
        node = encode_module(module, path, capture)
        self._recalls.note(at, ModuleRecall.of(module, node, self._seen.since(at[0])))
        return node

    def _encode_optimizer(self, optimizer: Optimizer, path: str, capture: Sink) -> Node:
        for hook in hooks_of(optimizer, "_optimizer_state_dict_pre_hooks"):
            hook(optimizer)  # as state_dict() does, before it reads the state
        named = self._recalls.parameter_names(capture.state).of(optimizer, capture.state)
        at = len(self._seen), path
        recall = self._recalls.last(at)
        again = recall.again(optimizer, named) if isinstance(recall, OptimizerRecall) else None
        if again is not None:
            state, has_other = self._recalled(at, *again), again[0].has_other
        else:
            state = encode_state(optimizer, path, capture, named)
            has_other = has_other_state(optimizer, named)
            recall = OptimizerRecall.of(optimizer, named, state, self._seen.since(at[0]))
            self._recalls.note(at, recall)
        return encode_optimizer(optimizer, path, capture, named, state, has_other=has_other)

    def recall(self, mapping: dict[Any, Any], path: str) -> Node | None:
        at = len(self._seen), path
        known = self._recalls.last_dict(at)
        again = known and known.again(mapping)
        if not again:
            return None
        recall, node, seen = again
        self._recalls.note_dict(at, recall)
        self._seen.extend(seen)
        return node

    def note(self, mapping: dict[Any, Any], path: str, node: Node) -> None:
        begin = max(0, len(self._seen) - len(mapping))
        recall = DictRecall.of(mapping, node, self._seen.since(begin))
        self._recalls.note_dict((begin, path), recall)

    def _recalled(self, at: At, recall: ObjectRecall, node: Node, seen: Seen) -> Node:
        self._recalls.note(at, recall)
        self._seen.extend(seen)
        return node

    def share_array(self, array: Any, node: Node, path: str) -> bool:
        """Takes a NumPy array to be stored along with the tensors, if torch can hold its memory."""
        from deepfreeze.frameworks.numpy import shareable

        if not shareable(array):
            return False
        self._seen.add(node, _tensor_of(array), path)
        return True

    def _names_in(self, state: object) -> ParameterNames:
        if self._names is None:
            self._names = ParameterNames(modules_in(state, ()))
        return self._names

    def finish(self, capture: Sink) -> None:
        memo: TensorMemo | None = capture.memo.tensors
        # If this ends in the middle, nodes are left half filled, and nobody may recall them.
        capture.memo.tensors = capture.memo.recalls = None
        if self._boxes or memo is None or not memo.replay(self._seen, capture):
            memo = TensorMemo()
            capture.memo.text = TextMemo()  # it knows nodes by identity, and these change
            for node in self._seen.nodes:
                node.pop("view", None)
            keys, before = capture.keys.taken(), len(capture.entries)
            seen = zip(self._seen.nodes, self._seen.tensors, self._seen.paths, strict=True)
            waiting = [pending(*one, self._boxes.get(id(one[0]))) for one in seen]
            store_all(waiting, capture)
            memo.record(self._seen, waiting, keys, capture.entries[before:], capture.keys.owners)
        self._seen = Seen()
        if self._boxes:  # a DTensor may lie in other memory the next time
            self._boxes = {}
            return
        self._recalls.keep()
        capture.memo.tensors, capture.memo.recalls = memo, self._recalls

    def match(self, node: Node, live: Any, path: str, plan: Filler) -> Remake:
        if isinstance(live, nn.Module):
            match_module(node, live, path, plan)
            return None
        if isinstance(live, Optimizer):
            match_optimizer(node, unwrapped(live), path, plan, self._names_in(plan.state))
            return None
        if not plan.keys.wants(path):
            return None
        if not isinstance(live, torch.Tensor):
            return plan.fresh(node, path)
        if is_special(live) and tag_of(node) == "ext" and node["t"] in SPECIAL_TAGS:
            stored, wanted = stored_form_of_special(node, plan), form_of_special(live)
            if stored == wanted:
                return plan.fresh(node, path)
            plan.unfit(path, f"stored {_described(stored)}, live {_described(wanted)}")
            return None
        if is_unknown_wrapper(live):
            kind = type(live).__qualname__
            plan.mismatch(path, node, f"a {kind}, which df.register_type does not know")
        elif is_special(live) or live.is_meta:
            place = " on meta" if live.is_meta else ""
            plan.mismatch(path, node, _described(form_of_special(live)) + place)
        elif plan.form_in(node) is not None:
            fill(node, live, path, plan)
        elif is_number(node) and not is_sharded(live):
            write_number(node, live, path, plan)
        else:
            plan.mismatch(path, node, _described(form_of_special(live)))
        return None

    def match_registered(
        self, node: Node, live: Any, known: RegisteredType, path: str, plan: Filler
    ) -> tuple[Remake] | None:
        if not isinstance(live, torch.Tensor):
            return None
        return (match_registered(node, live, known, path, plan),)

    def allocate(self, name: str, shape: Shape, size: int) -> Buffer:
        """torch's own memory, so that storages stay movable."""
        tensor = empty(name, shape, size)
        raw = raw_bytes(tensor)
        if raw.numel() != size:  # the engine writes `size` bytes in any case
            raise CorruptError(f"{name}{list(shape)} takes {raw.numel()} bytes, {size} are stored")
        return Buffer(raw.numpy(), raw.data_ptr(), size, tensor)

    def decodes(self, tag: str, node: Node) -> bool:
        if tag == "ext":
            return node["t"] in SPECIAL_TAGS
        return tag in ("tensor", "size", "dtype", "device")

    def decode(self, tag: str, node: Node, path: str, plan: Source) -> object:
        if tag == "tensor":
            return tensor_of(node, path, plan)
        if tag == "ext":
            return decode_special(node["t"], plan.decoder.decode(node["v"], path))
        if tag == "size":
            return torch.Size(node["v"])
        return dtype_from_name(node["v"]) if tag == "dtype" else torch.device(node["v"])

    def environment(self) -> dict[str, str]:
        return {"torch": torch.__version__, "num_threads": str(torch.get_num_threads())}


def generator_states() -> dict[str, Any]:
    """The states of the global generators: the CPU's, and all CUDA devices' if CUDA is used."""
    states: dict[str, Any] = {"torch": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def set_cpu_generator(state: torch.Tensor) -> None:
    """Sets the CPU's global generator."""
    torch.set_rng_state(state)


def set_cuda_generators(states: list[torch.Tensor]) -> None:
    """Sets the generators of all CUDA devices; MismatchError if there are more or fewer now."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count != len(states):
        raise MismatchError(f"RNG: stored for {len(states)} CUDA devices, {count} are here")
    torch.cuda.set_rng_state_all(states)


def _tensor_of(array: Any) -> torch.Tensor:
    if array.flags.writeable:
        return torch.from_numpy(array)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that a read-only array must not be written
        return torch.from_numpy(array)


def _described(form: SpecialForm) -> str:
    kind, dtype, shape = form
    return f"a {'' if kind == 'strided' else f'{kind} '}tensor of {form_text((dtype, shape))}"
