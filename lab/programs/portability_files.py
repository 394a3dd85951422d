"""The files that each framework writes of the network, and who can read them as arrays."""

import importlib
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import deepfreeze as df
from lab.networks.portable import BIAS, KERNEL, LAYERS, Array, Network

KERAS_LAYERS = dict(zip(LAYERS, ("conv1d", "conv1d_1", "dense", "dense_1", "dense_2"), strict=True))
PARTS = (KERNEL, BIAS)

Save = Callable[[Network, Path], object]
Read = Callable[[Path], dict[str, Array]]
Named = Callable[[Network, str, str], str]


def own_name(network: Network, layer: str, part: str) -> str:
    return network.name(layer, part)


def keras_name(_: Network, layer: str, part: str) -> str:
    return f"layers/{KERAS_LAYERS[layer]}/vars/{PARTS.index(part)}"


def checkpoint_name(network: Network, layer: str, part: str) -> str:
    return f"state/{plain(network, layer, part)}"


def plain(network: Network, layer: str, part: str) -> str:
    return f"{layer}_{network.parts[part]}"


@dataclass(frozen=True)
class Container:
    """`needs`: the framework without which nothing public reads it; empty: none."""

    name: str
    title: str
    framework: str
    filename: str
    save: Save
    read: Read
    needs: str = ""
    stored: Named = own_name  # how a tensor is called in it


def module(name: str) -> Any:
    return importlib.import_module(name)


def hdf5_arrays(file: Any) -> dict[str, Array]:
    h5py, found = module("h5py"), {}
    with h5py.File(file) as opened:

        def note(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset):
                found[name] = np.asarray(item[()])

        opened.visititems(note)
    return found


def keras_arrays(path: Path) -> dict[str, Array]:
    with zipfile.ZipFile(path) as archive, archive.open("model.weights.h5") as file:
        return hdf5_arrays(file)


def npz_arrays(path: Path) -> dict[str, Array]:
    with np.load(path) as file:
        return dict(file)


def safetensors_arrays(path: Path) -> dict[str, Array]:
    found: dict[str, Array] = module("safetensors.numpy").load_file(path)
    return found


def torch_arrays(path: Path) -> dict[str, Array]:
    return {name: one.numpy() for name, one in module("torch").load(path).items()}


def tensorflow_arrays(path: Path) -> dict[str, Array]:
    reader = module("tensorflow").train.load_checkpoint(str(path / "ck"))
    suffix = "/.ATTRIBUTES/VARIABLE_VALUE"
    return {
        name.removesuffix(suffix): np.asarray(reader.get_tensor(name))
        for name in reader.get_variable_to_shape_map()
        if name.endswith(suffix)
    }


def orbax_arrays(path: Path) -> dict[str, Array]:
    found = module("orbax.checkpoint").StandardCheckpointer().restore(path)
    return {name: np.asarray(one) for name, one in found.items()}


def deepfreeze_arrays(path: Path) -> dict[str, Array]:
    with df.Checkpointer(path) as checkpointer:
        return {name: np.asarray(one) for name, one in checkpointer.load().items()}


def save_tensorflow(network: Network, path: Path) -> None:
    state = {name.replace("/", "_"): one.value for name, one in network.live().items()}
    module("tensorflow").train.Checkpoint(state=state).write(str(path / "ck"))


def save_orbax(network: Network, path: Path) -> None:
    tree = {plain(network, *part): network.live()[name] for name, part in network.names().items()}
    with module("orbax.checkpoint").StandardCheckpointer() as checkpointer:
        checkpointer.save(path, tree)


def save_deepfreeze(network: Network, path: Path) -> None:
    with df.Checkpointer(path) as checkpointer:
        handle = checkpointer.save(1, network.live())
        assert handle is not None
        handle.wait("durable")


def saves(name: str, method: str) -> Save:
    """By a function of a module that takes the network."""

    def save(network: Any, path: Path) -> None:
        getattr(module(name), method)(str(path), network.network)

    return save


CONTAINERS = (
    Container("torch-save", "torch.save", "pytorch", "m.pt",
              lambda one, path: module("torch").save(one.live(), path), torch_arrays, "pytorch"),
    Container("safetensors", "safetensors of torch", "pytorch", "m.safetensors",
              lambda one, path: module("safetensors.torch").save_file(one.live(), path),
              safetensors_arrays),
    Container("df", "DeepFreeze", "pytorch", "run", save_deepfreeze, deepfreeze_arrays),
    Container("keras-weights", "Keras .weights.h5", "tensorflow", "m.weights.h5",
              lambda one, path: one.network.save_weights(path), hdf5_arrays, stored=keras_name),
    Container("keras", "Keras .keras", "tensorflow", "m.keras",
              lambda one, path: one.network.save(path), keras_arrays, stored=keras_name),
    Container("tensorflow", "tf.train.Checkpoint", "tensorflow", "tf",
              save_tensorflow, tensorflow_arrays, "tensorflow", checkpoint_name),
    Container("df-keras", "DeepFreeze, Keras", "tensorflow", "run",
              save_deepfreeze, deepfreeze_arrays),
    Container("chainer", "Chainer npz, default", "chainer", "m.npz",
              saves("chainer.serializers", "save_npz"), npz_arrays),
    Container("chainer-hdf5", "Chainer HDF5, default", "chainer", "m.h5",
              saves("chainer.serializers", "save_hdf5"), hdf5_arrays),
    Container("df-chainer", "DeepFreeze, Chainer", "chainer", "run",
              save_deepfreeze, deepfreeze_arrays),
    Container("orbax", "Orbax", "jax", "orbax", save_orbax, orbax_arrays, "jax", plain),
    Container("safetensors-flax", "safetensors of Flax", "jax", "m.safetensors",
              lambda one, path: module("safetensors.flax").save_file(one.live(), path),
              safetensors_arrays),
    Container("df-jax", "DeepFreeze, JAX", "jax", "run", save_deepfreeze, deepfreeze_arrays),
)  # fmt: skip
