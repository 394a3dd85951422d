"""Every saver by name: how it is used here, and what it has against these faults."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lab.faults.state import LAYERS
from lab.writers.menu import FRAMEWORKS, OWN, PEERS, python_of

TORCH, TORCH_PEERS = "lab.writers.torch_victims", "lab.writers.peer_victims"
JAX, TF = "lab.writers.jax_victims", "lab.writers.tensorflow_victims"
CHAINER = "lab.writers.chainer_victims"
OURS_CHECKS = "Every restore checks a CRC-32C of every block"
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
    environment: str = OWN
    layers: int = LAYERS  # of the network that is saved

    @property
    def python(self) -> Path:
        return python_of(self.environment)

    @property
    def absent(self) -> str:
        if self.python.exists():
            return ""
        return "not installed: `python lab/environment.py --all` does that"


MENU = (
    Entry(
        name="df",
        title="DeepFreeze",
        module=TORCH,
        kind="DeepFreeze",
        usage='`Checkpointer(path).save()`, done when `wait("durable")` returns; `restore(state)`',
        note=OURS_CHECKS,
        packages=("deepfreeze-checkpoint",),
    ),
    Entry(
        name="df-latency",
        title="DeepFreeze, latency, attached",
        module=TORCH,
        kind="DeepFreezeLatency",
        usage='`profile="latency"` with the optimizer attached; `save()`, `fence()`, and as above',
        note=OURS_CHECKS,
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
        name="torch-save-steps",
        title="torch.save, a path a step",
        module=TORCH,
        kind="TorchSaveStepped",
        usage="the same to a new path for each step; the highest is loaded",
        note="As torch.save",
        packages=("torch",),
    ),
    Entry(
        name="torch-save-legacy",
        title="torch.save, legacy format",
        module=TORCH,
        kind="TorchSaveLegacy",
        usage="`torch.save` with `_use_new_zipfile_serialization=False`, one path",
        note=f"{NO_CHECKSUM}: the file has none. It syncs nothing. {STEPS_KEEP}",
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
        module=TORCH_PEERS,
        kind="Torchsnapshot",
        usage="`Snapshot.take`, a path a step, and `restore`",
        note=f"{NO_CHECKSUM}. It syncs nothing",
        packages=("torchsnapshot",),
        imports=("torchsnapshot",),
        environment=PEERS,
    ),
    Entry(
        name="torch-checkpointing-default",
        title="torch_checkpointing as it comes",
        module=TORCH_PEERS,
        kind="TorchCheckpointingDefault",
        usage="`CheckpointManager.save`, done when its future is; a path a step",
        note="Needs a device that takes unaligned direct writes; see the next row",
        packages=("torch_checkpointing",),
        imports=("torch_checkpointing.checkpoint_manager",),
        environment=PEERS,
    ),
    Entry(
        name="torch-checkpointing-sync",
        title="torch_checkpointing sync, buffered",
        module=TORCH_PEERS,
        kind="TorchCheckpointingSync",
        usage="`with_sync_save()` and `use_direct_io=False`; a path a step",
        note=f"{NO_CHECKSUM}. It renames and syncs nothing",
        packages=("torch_checkpointing",),
        imports=("torch_checkpointing.checkpoint_manager",),
        environment=PEERS,
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
        environment=FRAMEWORKS,
    ),
    Entry(
        name="orbax-forced",
        title="Orbax Checkpointer, one path",
        module=JAX,
        kind="OrbaxForced",
        usage="`save(path, args=StandardSave(state), force=True)`, `restore`",
        note="It deletes what is there before it writes; the manager is what its documentation has",
        packages=("orbax-checkpoint", "tensorstore", "jax"),
        imports=("jax", "orbax.checkpoint"),
        environment=FRAMEWORKS,
    ),
    Entry(
        name="df-jax",
        title="DeepFreeze, JAX",
        module=JAX,
        kind="DeepFreeze",
        usage="as with torch, over a dict of arrays",
        note=OURS_CHECKS,
        packages=("deepfreeze-checkpoint", "jax"),
        imports=("jax", "orbax.checkpoint"),
        environment=FRAMEWORKS,
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
        environment=FRAMEWORKS,
    ),
    Entry(
        name="tensorflow-async",
        title="tf.train.CheckpointManager, async",
        module=TF,
        kind="TensorFlowManagerAsync",
        usage="the same with `enable_async=True`, done when `sync()` returns",
        note="As without",
        packages=("tensorflow_cpu",),
        imports=("tensorflow",),
        environment=FRAMEWORKS,
    ),
    Entry(
        name="tensorflow-saved-model",
        title="tf.saved_model.save",
        module=TF,
        kind="SavedModel",
        usage="`tf.saved_model.save` to a directory a step, and `tf.saved_model.load`",
        note="A CRC-32C of every tensor; none of the graph. It syncs nothing",
        packages=("tensorflow_cpu",),
        imports=("tensorflow",),
        environment=FRAMEWORKS,
    ),
    Entry(
        name="df-tensorflow",
        title="DeepFreeze, TensorFlow",
        module=TF,
        kind="DeepFreeze",
        usage="as with torch, over a dict of variables",
        note=OURS_CHECKS,
        packages=("deepfreeze-checkpoint", "tensorflow_cpu"),
        imports=("tensorflow",),
        environment=FRAMEWORKS,
    ),
    Entry(
        name="df-keras",
        title="DeepFreeze, Keras",
        module=TF,
        kind="DeepFreezeKeras",
        usage="as with torch, over a dict of Keras's variables",
        note=OURS_CHECKS,
        packages=("deepfreeze-checkpoint", "keras"),
        imports=("tensorflow",),
        environment=FRAMEWORKS,
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
        environment=FRAMEWORKS,
    ),
    Entry(
        name="keras-weights-steps",
        title="Keras .weights.h5, a path a step",
        module=TF,
        kind="KerasWeightsStepped",
        usage="the same to a new path for each step; the highest is loaded",
        note="As above",
        packages=("keras", "h5py"),
        imports=("tensorflow",),
        environment=FRAMEWORKS,
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
        environment=FRAMEWORKS,
    ),
    Entry(
        name="keras-legacy",
        title="Keras .h5, legacy",
        module=TF,
        kind="KerasLegacy",
        usage="`model.save` to one path that ends in .h5, `load_model`",
        note="HDF5 without Fletcher-32. It syncs nothing",
        packages=("keras", "h5py"),
        imports=("tensorflow",),
        environment=FRAMEWORKS,
    ),
    Entry(
        name="chainer",
        title="Chainer snapshot",
        module=CHAINER,
        kind="ChainerSnapshot",
        usage="`extensions.snapshot()`, loaded by its `autoload=True`",
        note="A zip, whose CRC-32s are compared. It renames and syncs nothing",
        packages=("chainer",),
        environment=FRAMEWORKS,
    ),
    Entry(
        name="chainer-thread",
        title="Chainer snapshot, ThreadWriter",
        module=CHAINER,
        kind="SnapshotThread",
        usage="`extensions.snapshot(writer=ThreadWriter())`, done when `finalize()` returns",
        note="As above",
        packages=("chainer",),
        environment=FRAMEWORKS,
    ),
    Entry(
        name="chainer-process",
        title="Chainer snapshot, ProcessWriter",
        module=CHAINER,
        kind="SnapshotProcess",
        usage="`extensions.snapshot(writer=ProcessWriter())`, done when `finalize()` returns",
        note="As above",
        packages=("chainer",),
        environment=FRAMEWORKS,
    ),
    Entry(
        name="chainer-thread-queue",
        title="Chainer snapshot, ThreadQueueWriter",
        module=CHAINER,
        kind="SnapshotThreadQueue",
        usage="`extensions.snapshot(writer=ThreadQueueWriter())`, done when `finalize()` returns",
        note="As above",
        packages=("chainer",),
        environment=FRAMEWORKS,
    ),
    Entry(
        name="chainer-process-queue",
        title="Chainer snapshot, ProcessQueueWriter",
        module=CHAINER,
        kind="SnapshotProcessQueue",
        usage="`extensions.snapshot(writer=ProcessQueueWriter())`, done when `finalize()` returns",
        note="As above",
        packages=("chainer",),
        environment=FRAMEWORKS,
    ),
    Entry(
        name="chainer-npz",
        title="Chainer npz",
        module=CHAINER,
        kind="Npz",
        usage="`save_npz` to one path, `load_npz`: deflated",
        note="A zip, whose CRC-32s are compared. It syncs nothing",
        packages=("chainer",),
        environment=FRAMEWORKS,
    ),
    Entry(
        name="chainer-npz-stored",
        title="Chainer npz, uncompressed",
        module=CHAINER,
        kind="NpzStored",
        usage="the same with `compression=False`",
        note="A zip, whose CRC-32s are compared. It syncs nothing",
        packages=("chainer",),
        environment=FRAMEWORKS,
    ),
    Entry(
        name="chainer-hdf5",
        title="Chainer HDF5",
        module=CHAINER,
        kind="Hdf5",
        usage="`save_hdf5` to one path, `load_hdf5`: gzip 4",
        note="gzip's Adler-32 is compared. It syncs nothing",
        packages=("chainer", "h5py"),
        environment=FRAMEWORKS,
    ),
    Entry(
        name="chainer-hdf5-stored",
        title="Chainer HDF5, uncompressed",
        module=CHAINER,
        kind="Hdf5Stored",
        usage="the same with `compression=None`",
        note="HDF5 has Fletcher-32, which Chainer does not offer. It syncs nothing",
        packages=("chainer", "h5py"),
        environment=FRAMEWORKS,
    ),
    Entry(
        name="df-chainer",
        title="DeepFreeze, Chainer",
        module=CHAINER,
        kind="DeepFreeze",
        usage="as with torch, over a link",
        note=OURS_CHECKS,
        packages=("deepfreeze-checkpoint", "chainer"),
        environment=FRAMEWORKS,
    ),
)
SAVERS = {entry.name: entry for entry in MENU}
