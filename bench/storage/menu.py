"""Every saver by name, what is said of it, and where it runs. Imports none of them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FRAMEWORKS_PYTHON = ROOT / "build" / "bench-frameworks-venv" / "bin" / "python"

ALL = "all"  # what syncs files and directory itself; the harness syncs for the others
FILES = "files"
NOTHING = "nothing"


@dataclass(frozen=True)
class Entry:
    name: str
    title: str
    module: str
    kind: str  # the class
    synced: str  # by the saver itself
    verifies: str  # what a restore checks; empty where it checks nothing
    partial: str  # how one tensor is loaded
    frameworks: bool = False  # runs in build/bench-frameworks-venv

    @property
    def python(self) -> Path:
        return FRAMEWORKS_PYTHON if self.frameworks else Path(sys.executable)

    @property
    def durable(self) -> bool:
        return self.synced == ALL


READ, WHOLE = "read alone", "loads all"
TORCH, PEERS = "bench.storage.torch_savers", "bench.storage.torch_peers"
JAX, TF = "bench.storage.jax_savers", "bench.storage.tensorflow_savers"
CHAINER = "bench.storage.chainer_savers"

MENU = (
    Entry("df", "DeepFreeze", TORCH, "DeepFreeze", ALL, "CRC-32C", READ),
    Entry(
        "df-quarter",
        "DeepFreeze, arena of a quarter",
        TORCH,
        "DeepFreezeQuarter",
        ALL,
        "CRC-32C",
        READ,
    ),
    Entry("torch-save", "torch.save", TORCH, "TorchSave", NOTHING, "", READ),
    Entry("torch-save-fsync", "torch.save + fsync", TORCH, "TorchSaveSynced", ALL, "", READ),
    Entry("safetensors", "safetensors save_file", TORCH, "Safetensors", NOTHING, "", READ),
    Entry("dcp", "dcp.save", TORCH, "Dcp", FILES, "", READ),
    Entry("dcp-async", "dcp.async_save", TORCH, "DcpAsync", FILES, "", READ),
    Entry(
        "dcp-async-reused",
        "dcp.async_save, stager re-used",
        TORCH,
        "DcpAsyncReused",
        FILES,
        "",
        READ,
    ),
    Entry(
        "torchsnapshot",
        "torchsnapshot take",
        PEERS,
        "Torchsnapshot",
        NOTHING,
        "",
        READ,
    ),
    Entry(
        "torchsnapshot-async",
        "torchsnapshot async_take",
        PEERS,
        "TorchsnapshotAsync",
        NOTHING,
        "",
        READ,
    ),
    Entry(
        "torch-checkpointing",
        "torch_checkpointing async, buffered",
        PEERS,
        "TorchCheckpointing",
        NOTHING,
        "",
        WHOLE,
    ),
    Entry(
        "torch-checkpointing-sync",
        "torch_checkpointing sync, buffered",
        PEERS,
        "TorchCheckpointingSync",
        NOTHING,
        "",
        WHOLE,
    ),
    Entry(
        "torch-checkpointing-default",
        "torch_checkpointing as it comes",
        PEERS,
        "TorchCheckpointingDefault",
        NOTHING,
        "",
        WHOLE,
    ),
    Entry(
        "fastpersist",
        "DeepSpeed FastPersist",
        PEERS,
        "FastPersist",
        FILES,
        "",
        WHOLE,
    ),
    Entry("orbax", "Orbax sync", JAX, "Orbax", FILES, "", READ, frameworks=True),
    Entry("orbax-async", "Orbax async", JAX, "OrbaxAsync", FILES, "", READ, frameworks=True),
    Entry(
        "tensorflow",
        "tf.train.Checkpoint",
        TF,
        "TensorFlow",
        NOTHING,
        "CRC-32C",
        READ,
        frameworks=True,
    ),
    Entry(
        "chainer-stored",
        "Chainer npz, uncompressed",
        CHAINER,
        "ChainerStored",
        NOTHING,
        "CRC-32",
        READ,
        frameworks=True,
    ),
    Entry(
        "chainer",
        "Chainer npz, default",
        CHAINER,
        "Chainer",
        NOTHING,
        "CRC-32",
        READ,
        frameworks=True,
    ),
)
SAVERS = {entry.name: entry for entry in MENU}
