"""Every saver by name, what is said of it, and where it runs. Imports none of them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

ALL = "all"  # what syncs files and directory itself; the harness syncs for the others
FILES = "files"
NOTHING = "nothing"

OWN = ""  # the environment that the bench itself runs in: torch and DeepFreeze
PEERS = "peers"  # further libraries for torch
FRAMEWORKS = "frameworks"  # TensorFlow, Keras, Chainer, JAX
FOLDERS = {PEERS: "bench-venv", FRAMEWORKS: "frameworks-venv"}  # both see .venv's packages too


def folder_of(environment: str) -> Path:
    return ROOT / "build" / FOLDERS[environment]


def python_of(environment: str) -> Path:
    return Path(sys.executable) if environment == OWN else folder_of(environment) / "bin/python"


@dataclass(frozen=True)
class Entry:
    name: str
    title: str
    module: str
    kind: str  # the class
    synced: str  # by the saver itself
    verifies: str  # what a restore checks; empty where it checks nothing
    partial: str  # how one tensor is loaded
    environment: str = OWN

    @property
    def python(self) -> Path:
        return python_of(self.environment)

    @property
    def durable(self) -> bool:
        return self.synced == ALL


READ, WHOLE = "read alone", "loads all"
TORCH, TORCH_PEERS = "lab.writers.torch_savers", "lab.writers.torch_peers"
JAX, TF = "lab.writers.jax_savers", "lab.writers.tensorflow_savers"
KERAS, CHAINER = "lab.writers.keras_savers", "lab.writers.chainer_savers"
OURS = "lab.writers.framework_savers"


def torch(
    name: str, title: str, kind: str, synced: str = NOTHING, verifies: str = "", partial: str = READ
) -> Entry:
    return Entry(name, title, TORCH, kind, synced, verifies, partial)


def peer(name: str, title: str, kind: str, synced: str = NOTHING, partial: str = WHOLE) -> Entry:
    return Entry(name, title, TORCH_PEERS, kind, synced, "", partial, PEERS)


def ours(name: str, title: str, kind: str) -> Entry:
    return Entry(name, f"DeepFreeze, {title}", OURS, kind, ALL, "CRC-32C", READ, FRAMEWORKS)


def orbax(name: str, title: str, kind: str) -> Entry:
    return Entry(name, title, JAX, kind, FILES, "", READ, FRAMEWORKS)


def tensorflow(name: str, title: str, kind: str) -> Entry:
    return Entry(name, title, TF, kind, NOTHING, "CRC-32C", READ, FRAMEWORKS)


def keras(name: str, title: str, kind: str, verifies: str, partial: str) -> Entry:
    return Entry(name, title, KERAS, kind, NOTHING, verifies, partial, FRAMEWORKS)


def chainer(name: str, title: str, kind: str, verifies: str = "CRC-32") -> Entry:
    return Entry(name, f"Chainer {title}", CHAINER, kind, NOTHING, verifies, READ, FRAMEWORKS)


MENU = (
    torch("df", "DeepFreeze", "DeepFreeze", ALL, "CRC-32C"),
    torch("df-quarter", "DeepFreeze, arena of a quarter", "DeepFreezeQuarter", ALL, "CRC-32C"),
    torch("df-latency", "DeepFreeze, latency, attached", "DeepFreezeLatency", ALL, "CRC-32C"),
    torch("torch-save", "torch.save", "TorchSave"),
    torch("torch-save-fsync", "torch.save + fsync", "TorchSaveSynced", ALL),
    torch("torch-save-legacy", "torch.save, legacy format", "TorchSaveLegacy", partial=WHOLE),
    torch("safetensors", "safetensors save_file", "Safetensors"),
    torch("dcp", "dcp.save", "Dcp", FILES),
    torch("dcp-async", "dcp.async_save", "DcpAsync", FILES),
    torch("dcp-async-reused", "dcp.async_save, stager re-used", "DcpAsyncReused", FILES),
    peer("torchsnapshot", "torchsnapshot take", "Torchsnapshot", partial=READ),
    peer("torchsnapshot-async", "torchsnapshot async_take", "TorchsnapshotAsync", partial=READ),
    peer("torch-checkpointing", "torch_checkpointing async, buffered", "TorchCheckpointing"),
    peer(
        "torch-checkpointing-sync", "torch_checkpointing sync, buffered", "TorchCheckpointingSync"
    ),
    peer(
        "torch-checkpointing-default",
        "torch_checkpointing as it comes",
        "TorchCheckpointingDefault",
    ),
    peer("fastpersist", "DeepSpeed FastPersist", "FastPersist", FILES),
    ours("df-jax", "JAX", "DeepFreezeJax"),
    ours("df-jax-latency", "JAX, latency", "DeepFreezeJaxLatency"),
    orbax("orbax", "Orbax sync", "Orbax"),
    orbax("orbax-async", "Orbax async", "OrbaxAsync"),
    ours("df-tensorflow", "TensorFlow", "DeepFreezeTensorFlow"),
    ours("df-tensorflow-latency", "TensorFlow, latency", "DeepFreezeTensorFlowLatency"),
    tensorflow("tensorflow", "tf.train.Checkpoint", "TensorFlow"),
    tensorflow("tensorflow-async", "tf.train.Checkpoint, async", "TensorFlowAsync"),
    tensorflow("tensorflow-saved-model", "tf.saved_model.save", "SavedModel"),
    ours("df-keras", "Keras", "DeepFreezeKeras"),
    ours("df-keras-latency", "Keras, latency", "DeepFreezeKerasLatency"),
    keras("keras-weights", "Keras .weights.h5", "KerasWeights", "", READ),
    keras("keras", "Keras .keras", "KerasModel", "CRC-32", WHOLE),
    keras("keras-legacy", "Keras .h5, legacy", "KerasLegacy", "", WHOLE),
    ours("df-chainer", "Chainer", "DeepFreezeChainer"),
    ours("df-chainer-latency", "Chainer, latency, attached", "DeepFreezeChainerLatency"),
    chainer("chainer-stored", "npz, uncompressed", "ChainerStored"),
    chainer("chainer", "npz, default", "Chainer"),
    chainer("chainer-hdf5-stored", "HDF5, uncompressed", "ChainerHdf5Stored", ""),
    chainer("chainer-hdf5", "HDF5, default", "ChainerHdf5", "Adler-32"),
    chainer("chainer-simple", "SimpleWriter", "ChainerSimpleWriter"),
    chainer("chainer-thread", "ThreadWriter", "ChainerThreadWriter"),
    chainer("chainer-process", "ProcessWriter", "ChainerProcessWriter"),
    chainer("chainer-thread-queue", "ThreadQueueWriter", "ChainerThreadQueueWriter"),
    chainer("chainer-process-queue", "ProcessQueueWriter", "ChainerProcessQueueWriter"),
)
SAVERS = {entry.name: entry for entry in MENU}
