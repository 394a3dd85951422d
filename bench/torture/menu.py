"""Every saver by name: how it is used here, and what it has against these faults."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from bench.storage.menu import FRAMEWORKS_PYTHON, ROOT
from bench.torture.state import LAYERS

PEERS_PYTHON = ROOT / "build" / "bench-venv" / "bin" / "python"
TORCH, PEERS = "bench.torture.torch_victims", "bench.torture.peer_victims"
JAX, TF = "bench.torture.jax_victims", "bench.torture.tensorflow_victims"
CHAINER = "bench.torture.chainer_victims"
NO_CHECKSUM = "Nothing of what it loads is compared with a checksum, and no option does so"
STEPS_KEEP = "A path of its own for each save would keep the older one"


@dataclass(frozen=True)
class Entry:
    name: str
    title: str
    module: str
    kind: str  # the class
    usage: str
    note: str  # what it has, or could have, against these faults
    packages: tuple[str, ...]
    imports: tuple[str, ...] = ()  # beside the module, before a process is forked
    python: Path = Path(sys.executable)
    layers: int = LAYERS  # of the network that is saved

    @property
    def absent(self) -> str:
        if self.python.exists():
            return ""
        return "not installed: `python bench/environment.py --all` does that"


def peers_python() -> Path:
    """Of build/bench-venv, which sees .venv too; else this one, which may have them."""
    return PEERS_PYTHON if PEERS_PYTHON.exists() else Path(sys.executable)


MENU = (
    Entry(
        name="df",
        title="DeepFreeze",
        module=TORCH,
        kind="DeepFreeze",
        usage='`Checkpointer(path).save()`, done when `wait("durable")` returns; `restore(state)`',
        note="Every restore checks a CRC-32C of every block",
        packages=("deepfreeze-checkpoint",),
    ),
    Entry(
        name="torch-save",
        title="torch.save",
        module=TORCH,
        kind="TorchSave",
        usage='`torch.save(state, "latest.pt")`, `torch.load`',
        note="The file has CRC-32s; no option of torch.load compares them, `python -m zipfile -t` "
        f"does. It syncs nothing. {STEPS_KEEP}",
        packages=("torch",),
    ),
    Entry(
        name="torch-save-renamed",
        title="torch.save, renamed",
        module=TORCH,
        kind="TorchSaveRenamed",
        usage="the same to another name, then `os.replace`",
        note="As torch.save",
        packages=("torch",),
    ),
    Entry(
        name="torch-save-fsync",
        title="torch.save, fsync, renamed, fsync",
        module=TORCH,
        kind="TorchSaveSynced",
        usage="the same with file and directory synced: written by the user, not by torch",
        note="As torch.save, but for the syncs",
        packages=("torch",),
    ),
    Entry(
        name="safetensors",
        title="safetensors",
        module=TORCH,
        kind="Safetensors",
        usage="`save_file` to one path, `load_file`",
        note=f"{NO_CHECKSUM}. It renames and syncs nothing. {STEPS_KEEP}",
        packages=("safetensors",),
    ),
    Entry(
        name="dcp",
        title="dcp.save, one id",
        module=TORCH,
        kind="Dcp",
        usage="`dcp.save` to one checkpoint id, as its tutorial does, and `dcp.load`",
        note=f"{NO_CHECKSUM}. `sync_files=True`, its default, syncs files, not directories. "
        "An id of its own for each save would keep the older one",
        packages=("torch",),
    ),
    Entry(
        name="dcp-few",
        title="dcp.save, one id, 8 tensors",
        module=TORCH,
        kind="Dcp",
        usage="the same with one layer instead of 12, and so with metadata of less than 8 KiB",
        note="`.metadata` is synced before Python's buffer, which holds all of that, is written",
        packages=("torch",),
        layers=1,
    ),
    Entry(
        name="dcp-async",
        title="dcp.async_save, an id a step",
        module=TORCH,
        kind="DcpAsync",
        usage="`dcp.async_save` as in its tutorial, done when its future is; `dcp.load`",
        note="As dcp.save",
        packages=("torch",),
    ),
    Entry(
        name="torchsnapshot",
        title="torchsnapshot",
        module=PEERS,
        kind="Torchsnapshot",
        usage="`Snapshot.take`, a path a step, and `restore`",
        note=f"{NO_CHECKSUM}. It syncs nothing",
        packages=("torchsnapshot",),
        imports=("torchsnapshot",),
        python=peers_python(),
    ),
    Entry(
        name="torch-checkpointing-default",
        title="torch_checkpointing as it comes",
        module=PEERS,
        kind="TorchCheckpointingDefault",
        usage="`CheckpointManager.save`, done when its future is; a path a step",
        note="Needs a device that takes unaligned direct writes; see the next row",
        packages=("torch_checkpointing",),
        imports=("torch_checkpointing.checkpoint_manager",),
        python=peers_python(),
    ),
    Entry(
        name="torch-checkpointing-sync",
        title="torch_checkpointing sync, buffered",
        module=PEERS,
        kind="TorchCheckpointingSync",
        usage="`with_sync_save()` and `use_direct_io=False`; a path a step",
        note=f"{NO_CHECKSUM}. It renames and syncs nothing",
        packages=("torch_checkpointing",),
        imports=("torch_checkpointing.checkpoint_manager",),
        python=peers_python(),
    ),
    Entry(
        name="orbax",
        title="Orbax CheckpointManager",
        module=JAX,
        kind="OrbaxManager",
        usage="`save`, done when `wait_until_finished` returns; `restore(latest_step())`",
        note="Its index is compared with CRC-32Cs, the arrays are not. These are synced, "
        "`_METADATA` and the last rename are not",
        packages=("orbax-checkpoint", "tensorstore", "jax"),
        imports=("jax", "orbax.checkpoint"),
        python=FRAMEWORKS_PYTHON,
    ),
    Entry(
        name="tensorflow",
        title="tf.train.CheckpointManager",
        module=TF,
        kind="TensorFlowManager",
        usage="`save`, and `restore(latest_checkpoint)`",
        note="Every restore checks a CRC-32C of every tensor. It syncs nothing",
        packages=("tensorflow_cpu",),
        imports=("tensorflow",),
        python=FRAMEWORKS_PYTHON,
    ),
    Entry(
        name="keras-weights",
        title="Keras .weights.h5",
        module=TF,
        kind="KerasWeights",
        usage="`save_weights` to one path, `load_weights`",
        note=f"HDF5 has Fletcher-32, which Keras does not offer. It syncs nothing. {STEPS_KEEP}",
        packages=("keras", "h5py"),
        imports=("tensorflow",),
        python=FRAMEWORKS_PYTHON,
    ),
    Entry(
        name="keras",
        title="Keras .keras",
        module=TF,
        kind="KerasModel",
        usage="`model.save` to one path, `load_model`",
        note=f"A zip, whose CRC-32s are compared. It syncs nothing. {STEPS_KEEP}",
        packages=("keras", "h5py"),
        imports=("tensorflow",),
        python=FRAMEWORKS_PYTHON,
    ),
    Entry(
        name="chainer",
        title="Chainer snapshot",
        module=CHAINER,
        kind="ChainerSnapshot",
        usage="`extensions.snapshot()`, loaded by its `autoload=True`",
        note="A zip, whose CRC-32s are compared. It renames and syncs nothing",
        packages=("chainer",),
        python=FRAMEWORKS_PYTHON,
    ),
)
SAVERS = {entry.name: entry for entry in MENU}
