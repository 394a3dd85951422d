"""The registry: every saver by name, with its description and environment. Imports none of them.

MENU has the savers as each is measured by itself, VICTIMS as each is used under faults: a library
may be saved with in several ways there. Those beside a training are in loop.py and its neighbours.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from lab.faults.state import LAYERS
from lab.writers.saver import KEEPS_ALL, STEPS

ROOT = Path(__file__).resolve().parents[2]

ALL = "all"  # a saver that syncs files and directory itself; the harness syncs for the others
FILES = "files"
NOTHING = "nothing"

READ, WHOLE = "read alone", "loads all"

OWN = ""  # the environment that the bench itself runs in: torch and DeepFreeze
PEERS = "peers"  # further libraries for torch
FRAMEWORKS = "frameworks"  # TensorFlow, Keras, Chainer, JAX
FOLDERS = {PEERS: "bench-venv", FRAMEWORKS: "frameworks-venv"}  # both see .venv's packages too


def folder_of(environment: str) -> Path:
    return ROOT / "build" / FOLDERS[environment]


def python_of(environment: str) -> Path:
    return Path(sys.executable) if environment == OWN else folder_of(environment) / "bin/python"


TORCH, JAX = "lab.writers.torch_savers", "lab.writers.jax_savers"
TF, CHAINER = "lab.writers.tensorflow_savers", "lab.writers.chainer_savers"
MODULES = {TORCH: "pytorch", JAX: "jax", TF: "tensorflow", CHAINER: "chainer"}
# Modules that a process under faults imports before it is forked, beside the saver's.
IMPORTS = {
    JAX: ("jax", "orbax.checkpoint"), TF: ("tensorflow", "keras"),
    CHAINER: ("lab.writers.chainer_ready",),
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    name: str
    title: str
    module: str
    kind: str  # the class
    environment: str = OWN
    synced: str = NOTHING  # by the saver itself
    verifies: str = ""  # the checks of a restore; empty if it checks nothing
    partial: str = WHOLE  # how one tensor is loaded
    # Under faults:
    way: str = ""  # as lab.writers.saver.as_victim() takes it
    usage: str = ""
    note: str = ""  # its means, used or not, against these faults
    packages: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    layers: int = LAYERS  # of the network that is saved

    @property
    def python(self) -> Path:
        return python_of(self.environment)

    @property
    def durable(self) -> bool:
        return self.synced == ALL

    @property
    def framework(self) -> str:
        return MODULES.get(self.module, MODULES[TORCH])

    @property
    def absent(self) -> str:
        """Why it can't run here; empty where it can."""
        if self.python.exists():
            return ""
        return "not installed: `python lab/environment.py --all` does that"


def torch(
    name: str, title: str, kind: str, synced: str = NOTHING, verifies: str = "", partial: str = READ
) -> Entry:
    return Entry(name, title, TORCH, kind, OWN, synced, verifies, partial)


def peer(name: str, title: str, kind: str, synced: str = NOTHING, partial: str = WHOLE) -> Entry:
    return Entry(name, title, TORCH, kind, PEERS, synced, "", partial)


def ours(module: str, name: str, title: str, kind: str) -> Entry:
    return Entry(name, f"DeepFreeze, {title}", module, kind, FRAMEWORKS, ALL, "CRC-32C", READ)


def orbax(name: str, title: str, kind: str) -> Entry:
    return Entry(name, title, JAX, kind, FRAMEWORKS, FILES, "", READ)


def tensorflow(
    name: str, title: str, kind: str, verifies: str = "CRC-32C", partial: str = READ
) -> Entry:
    return Entry(name, title, TF, kind, FRAMEWORKS, NOTHING, verifies, partial)


def chainer(name: str, title: str, kind: str, verifies: str = "CRC-32") -> Entry:
    return Entry(name, f"Chainer {title}", CHAINER, kind, FRAMEWORKS, NOTHING, verifies, READ)


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
    ours(JAX, "df-jax", "JAX", "DeepFreezeJax"),
    ours(JAX, "df-jax-latency", "JAX, latency", "DeepFreezeJaxLatency"),
    orbax("orbax", "Orbax sync", "Orbax"),
    orbax("orbax-async", "Orbax async", "OrbaxAsync"),
    ours(TF, "df-tensorflow", "TensorFlow", "DeepFreezeTensorFlow"),
    ours(TF, "df-tensorflow-latency", "TensorFlow, latency", "DeepFreezeTensorFlowLatency"),
    tensorflow("tensorflow", "tf.train.Checkpoint", "TensorFlow"),
    tensorflow("tensorflow-async", "tf.train.Checkpoint, async", "TensorFlowAsync"),
    tensorflow("tensorflow-saved-model", "tf.saved_model.save", "SavedModel"),
    ours(TF, "df-keras", "Keras", "DeepFreezeKeras"),
    ours(TF, "df-keras-latency", "Keras, latency", "DeepFreezeKerasLatency"),
    tensorflow("keras-weights", "Keras .weights.h5", "KerasWeights", "", READ),
    tensorflow("keras", "Keras .keras", "KerasModel", "CRC-32", WHOLE),
    tensorflow("keras-legacy", "Keras .h5, legacy", "KerasLegacy", "", WHOLE),
    ours(CHAINER, "df-chainer", "Chainer", "DeepFreezeChainer"),
    ours(CHAINER, "df-chainer-latency", "Chainer, latency, attached", "DeepFreezeChainerLatency"),
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

OURS_CHECKS = "Every restore checks a CRC-32C of every block"
NO_CHECKSUM = "Nothing of what it loads is compared with a checksum, and no option does so"
STEPS_KEEP = "A path of its own for each save would keep the older one"
ORBAX, KERAS = ("orbax-checkpoint", "tensorstore", "jax"), ("keras", "h5py")
OURS = "deepfreeze-checkpoint"


def victim(
    module: str, name: str, title: str, kind: str, way: str, packages: tuple[str, ...] | str,
    usage: str, note: str, environment: str | None = None, imports: tuple[str, ...] = (),
    layers: int = LAYERS,
) -> Entry:  # fmt: skip
    """In the environment of the module's framework, unless another is named."""
    own = OWN if module == TORCH else FRAMEWORKS
    return Entry(
        name, title, module, kind, own if environment is None else environment, way=way,
        usage=usage, note=note, packages=(packages,) if isinstance(packages, str) else packages,
        imports=imports or IMPORTS.get(module, ()), layers=layers,
    )  # fmt: skip


VICTIMS = (
    victim(TORCH, "df", "DeepFreeze", "DeepFreeze", KEEPS_ALL, OURS,
        '`Checkpointer(path).save()`, done when `wait("durable")` returns; `restore(state)`',
        OURS_CHECKS),
    victim(TORCH, "df-latency", "DeepFreeze, latency, attached", "DeepFreezeLatency", KEEPS_ALL,
        OURS, '`profile="latency"` with the optimizer attached; `save()`, `fence()`, and as above',
        OURS_CHECKS),
    victim(TORCH, "torch-save", "torch.save", "TorchSaveWhole", "latest.pt", "torch",
        '`torch.save(state, "latest.pt")`, `torch.load`',
        "The file has CRC-32s; no option of torch.load compares them, `python -m zipfile -t` "
        f"does. It syncs nothing. {STEPS_KEEP}"),
    victim(TORCH, "torch-save-steps", "torch.save, a path a step", "TorchSaveWhole", STEPS,
        "torch", "the same to a new path for each step; the highest is loaded", "As torch.save"),
    victim(TORCH, "torch-save-legacy", "torch.save, legacy format", "TorchSaveLegacy", "latest.pt",
        "torch", "`torch.save` with `_use_new_zipfile_serialization=False`, one path",
        f"{NO_CHECKSUM}: the file has none. It syncs nothing. {STEPS_KEEP}"),
    victim(TORCH, "torch-save-renamed", "torch.save, renamed", "TorchSaveRenamed", "latest.pt",
        "torch", "the same to another name, then `os.replace`", "As torch.save"),
    victim(TORCH, "torch-save-fsync", "torch.save, fsync, renamed, fsync", "TorchSaveSyncedWhole",
        "latest.pt", "torch",
        "the same with file and directory synced: written by the user, not by torch",
        "As torch.save, but for the syncs"),
    victim(TORCH, "safetensors", "safetensors", "Safetensors", "model.safetensors", "safetensors",
        "`save_file` to one path, `load_file`",
        f"{NO_CHECKSUM}. It renames and syncs nothing. {STEPS_KEEP}"),
    victim(TORCH, "dcp", "dcp.save, one id", "Dcp", "checkpoint", "torch",
        "`dcp.save` to one checkpoint id, as its tutorial does, and `dcp.load`",
        f"{NO_CHECKSUM}. `sync_files=True`, its default, syncs files, not directories. "
        "An id of its own for each save would keep the older one"),
    victim(TORCH, "dcp-few", "dcp.save, one id, 8 tensors", "Dcp", "checkpoint", "torch",
        "the same with one layer instead of 12, and so with metadata of less than 8 KiB",
        "`.metadata` is synced before Python's buffer, which holds all of that, is written",
        layers=1),
    victim(TORCH, "dcp-async", "dcp.async_save, an id a step", "DcpAsync", STEPS, "torch",
        "`dcp.async_save` as in its tutorial, done when its future is; `dcp.load`", "As dcp.save"),
    victim(TORCH, "torchsnapshot", "torchsnapshot", "Torchsnapshot", STEPS, "torchsnapshot",
        "`Snapshot.take`, a path a step, and `restore`", f"{NO_CHECKSUM}. It syncs nothing", PEERS,
        ("torchsnapshot",)),
    victim(TORCH, "torch-checkpointing-default", "torch_checkpointing as it comes",
        "TorchCheckpointingDefault", STEPS, "torch_checkpointing",
        "`CheckpointManager.save`, done when its future is; a path a step",
        "Needs a device that takes unaligned direct writes; see the next row", PEERS,
        ("torch_checkpointing.checkpoint_manager",)),
    victim(TORCH, "torch-checkpointing-sync", "torch_checkpointing sync, buffered",
        "TorchCheckpointingSync", STEPS, "torch_checkpointing",
        "`with_sync_save()` and `use_direct_io=False`; a path a step",
        f"{NO_CHECKSUM}. It renames and syncs nothing", PEERS,
        ("torch_checkpointing.checkpoint_manager",)),
    victim(JAX, "orbax", "Orbax CheckpointManager", "OrbaxManager", "", ORBAX,
        "`save`, done when `wait_until_finished` returns; `restore(latest_step())`",
        "Its index is compared with CRC-32Cs, the arrays are not. These are synced, `_METADATA` "
        "and the last rename are not"),
    victim(JAX, "orbax-forced", "Orbax Checkpointer, one path", "OrbaxForced", "latest", ORBAX,
        "`save(path, args=StandardSave(state), force=True)`, `restore`",
        "It deletes what is there before it writes; the manager is what its documentation has"),
    victim(JAX, "df-jax", "DeepFreeze, JAX", "DeepFreezeJax", KEEPS_ALL, (OURS, "jax"),
        "as with torch, over a dict of arrays", OURS_CHECKS),
    victim(TF, "tensorflow", "tf.train.CheckpointManager", "TensorFlowManager", "",
        "tensorflow_cpu", "`save`, and `restore(latest_checkpoint)`",
        "Every restore checks a CRC-32C of every tensor. It syncs nothing"),
    victim(TF, "tensorflow-async", "tf.train.CheckpointManager, async", "TensorFlowManagerAsync",
        "", "tensorflow_cpu", "the same with `enable_async=True`, done when `sync()` returns",
        "As without"),
    victim(TF, "tensorflow-saved-model", "tf.saved_model.save", "SavedModel", STEPS,
        "tensorflow_cpu", "`tf.saved_model.save` to a directory a step, and `tf.saved_model.load`",
        "A CRC-32C of every tensor; none of the graph. It syncs nothing"),
    victim(TF, "df-tensorflow", "DeepFreeze, TensorFlow", "DeepFreezeTensorFlow", KEEPS_ALL,
        (OURS, "tensorflow_cpu"), "as with torch, over a dict of variables", OURS_CHECKS),
    victim(TF, "df-keras", "DeepFreeze, Keras", "DeepFreezeKeras", KEEPS_ALL, (OURS, "keras"),
        "as with torch, over a dict of Keras's variables", OURS_CHECKS),
    victim(TF, "keras-weights", "Keras .weights.h5", "KerasWeights", "latest.weights.h5", KERAS,
        "`save_weights` to one path, `load_weights`",
        f"HDF5 has Fletcher-32, which Keras does not offer. It syncs nothing. {STEPS_KEEP}"),
    victim(TF, "keras-weights-steps", "Keras .weights.h5, a path a step", "KerasWeights", STEPS,
        KERAS, "the same to a new path for each step; the highest is loaded", "As above"),
    victim(TF, "keras", "Keras .keras", "KerasModel", "latest.keras", KERAS,
        "`model.save` to one path, `load_model`",
        f"A zip, whose CRC-32s are compared. It syncs nothing. {STEPS_KEEP}"),
    victim(TF, "keras-legacy", "Keras .h5, legacy", "KerasLegacy", "latest.h5", KERAS,
        "`model.save` to one path that ends in .h5, `load_model`",
        "HDF5 without Fletcher-32. It syncs nothing"),
    victim(CHAINER, "chainer", "Chainer snapshot", "ChainerSnapshot", "", "chainer",
        "`extensions.snapshot()`, loaded by its `autoload=True`",
        "A zip, whose CRC-32s are compared. It renames and syncs nothing"),
    victim(CHAINER, "chainer-thread", "Chainer snapshot, ThreadWriter", "SnapshotThread", "",
        "chainer", "`extensions.snapshot(writer=ThreadWriter())`, done when `finalize()` returns",
        "As above"),
    victim(CHAINER, "chainer-process", "Chainer snapshot, ProcessWriter", "SnapshotProcess", "",
        "chainer", "`extensions.snapshot(writer=ProcessWriter())`, done when `finalize()` returns",
        "As above"),
    victim(CHAINER, "chainer-thread-queue", "Chainer snapshot, ThreadQueueWriter",
        "SnapshotThreadQueue", "", "chainer",
        "`extensions.snapshot(writer=ThreadQueueWriter())`, done when `finalize()` returns",
        "As above"),
    victim(CHAINER, "chainer-process-queue", "Chainer snapshot, ProcessQueueWriter",
        "SnapshotProcessQueue", "", "chainer",
        "`extensions.snapshot(writer=ProcessQueueWriter())`, done when `finalize()` returns",
        "As above"),
    victim(CHAINER, "chainer-npz", "Chainer npz", "Chainer", "latest.npz", "chainer",
        "`save_npz` to one path, `load_npz`: deflated",
        "A zip, whose CRC-32s are compared. It syncs nothing"),
    victim(CHAINER, "chainer-npz-stored", "Chainer npz, uncompressed", "ChainerStored",
        "latest.npz", "chainer", "the same with `compression=False`",
        "A zip, whose CRC-32s are compared. It syncs nothing"),
    victim(CHAINER, "chainer-hdf5", "Chainer HDF5", "ChainerHdf5", "latest.h5",
        ("chainer", "h5py"), "`save_hdf5` to one path, `load_hdf5`: gzip 4",
        "gzip's Adler-32 is compared. It syncs nothing"),
    victim(CHAINER, "chainer-hdf5-stored", "Chainer HDF5, uncompressed", "ChainerHdf5Stored",
        "latest.h5", ("chainer", "h5py"), "the same with `compression=None`",
        "HDF5 has Fletcher-32, which Chainer does not offer. It syncs nothing"),
    victim(CHAINER, "df-chainer", "DeepFreeze, Chainer", "DeepFreezeChainer", KEEPS_ALL,
        (OURS, "chainer"), "as with torch, over a link", OURS_CHECKS),
)  # fmt: skip
# For the torture alone: the study would cut the power of a disk that the agent holds.
WITH_AGENT = victim(
    TORCH, "df-agent", "DeepFreeze with an agent", "DeepFreezeAgent", KEEPS_ALL, OURS,
    '`Checkpointer(path, agent=...)`, captured when `wait("captured")` returns; the rest as above',
    f"{OURS_CHECKS}. Its disk's power is not cut: the agent would hold it",
)  # fmt: skip
VICTIMS_BY_NAME = {entry.name: entry for entry in VICTIMS}
