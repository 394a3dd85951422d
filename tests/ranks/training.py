"""A small training run of several ranks, with everything that a resume must bring back.

Batches and dropout are drawn from each rank's own generators, so that a rank which resumes with
another's ends differently; batch statistics differ between ranks as well.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import deepfreeze as df

KINDS = ("ddp", "fsdp")
STEPS = 10
_WIDTH = 640  # 640 x 640 floats are more than a plan leaves uncut


def make_model(kind: str, world: int) -> nn.Module:
    """A model with equal weights on all ranks."""
    torch.manual_seed(7)
    model = nn.Sequential(
        nn.Linear(32, _WIDTH),
        nn.BatchNorm1d(_WIDTH),
        nn.ReLU(),
        nn.Dropout(0.25),
        nn.Linear(_WIDTH, _WIDTH),
        nn.Linear(_WIDTH, 7),
    )
    if kind == "ddp":
        # Else the buckets of the first step differ from later ones, and with more than two ranks so
        # does the order in which gradients are summed: of a resumed process too.
        return nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
    mesh = init_device_mesh("cpu", (world,))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


class Training:
    """One rank's part of it."""

    def __init__(self, kind: str, rank: int, world: int) -> None:
        self.model = make_model(kind, world)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        torch.manual_seed(100 + rank)
        self.state: dict[str, Any] = {
            "model": self.model,
            "optim": self.optimizer,
            "rng": df.RNG(),
            "step": 0,
        }

    def step(self) -> None:
        inputs = torch.randn(8, 32)
        wanted = torch.randint(0, 7, (8,))
        loss = nn.functional.cross_entropy(self.model(inputs), wanted)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.state["step"] += 1

    def digest(self) -> str:
        """The digest of all state that this rank would continue from; collective."""
        digest = hashlib.sha256(torch.get_rng_state().numpy().tobytes())
        for tensor in self._tensors():
            whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
            digest.update(whole.detach().numpy().tobytes())
        digest.update(str(self.state["step"]).encode())
        return digest.hexdigest()

    def _tensors(self) -> Iterator[torch.Tensor]:
        yield from self.model.parameters()
        yield from self._buffers()
        for parameter in self.model.parameters():
            state = self.optimizer.state.get(parameter, {})
            yield from (state[name] for name in sorted(state))

    def _buffers(self) -> Iterator[torch.Tensor]:
        if isinstance(self.model, nn.parallel.DistributedDataParallel):
            dist.barrier()
            # The next forward broadcasts these: only rank 0's continue.
            for buffer in self.model.buffers():
                shared = buffer.clone()
                dist.broadcast(shared, 0)
                yield shared
        else:
            yield from self.model.buffers()


def train(kind: str, run: Path | None, rank: int, world: int, attach: bool = True) -> str:
    """Trains to the end, from wherever `run` stands; without one, undisturbed. The digest."""
    training = Training(kind, rank, world)
    if run is None:
        for _ in range(STEPS):
            training.step()
        return training.digest()
    with df.Checkpointer(run, ranks=df.TorchRanks(timeout_seconds=30)) as ckpt:
        first = (ckpt.restore(training.state) or 0) + 1
        if attach:
            ckpt.attach(training.optimizer)
        for step in range(first, STEPS + 1):
            training.step()
            ckpt.save(step, training.state)
        digest = training.digest()
    return f"{first - 1} {digest}"
