"""Libraries for torch that come in packages of their own."""

from __future__ import annotations

from lab.writers import torch_peers
from lab.writers.victim import Stepped


class Torchsnapshot(Stepped, torch_peers.Torchsnapshot):
    """Snapshot.take."""


class TorchsnapshotAsync(Stepped, torch_peers.TorchsnapshotAsync):
    """Snapshot.async_take."""


class TorchCheckpointing(Stepped, torch_peers.TorchCheckpointing):
    """Beside, in a process of its own."""


class TorchCheckpointingSync(Stepped, torch_peers.TorchCheckpointingSync):
    """In the caller's thread."""


class TorchCheckpointingDefault(Stepped, torch_peers.TorchCheckpointingDefault):
    """As it is without a word of configuration."""
