"""Weights from one framework's files to another framework's network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepfreeze as df

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["KERAS_BACKEND"] = "tensorflow"
pytest.importorskip("orbax", reason="of build/frameworks-venv")

import jax
import keras
import orbax.checkpoint as ocp
import tensorflow as tf
import torch
from flax import nnx

from examples.networks.candle import NT3
from examples.networks.resnet import resnet50
from lab.networks import chainer_workloads as chainer_window
from lab.networks import jax_workloads as jax_window
from lab.networks import keras_workloads as keras_window

ROOT = Path(__file__).resolve().parents[2]
GENES, LENGTH = 600, (600 - 28) // 10


def import_it(source: Path, run: Path, rules: dict[str, Any] | None = None) -> None:
    more = []
    if rules is not None:
        run.with_suffix(".json").write_text(json.dumps(rules))
        more = ["--map", str(run.with_suffix(".json"))]
    command = [sys.executable, "-m", "deepfreeze", "import", str(source), str(run), *more]
    subprocess.run(command, check=True, cwd=ROOT)


def loaded(run: Path) -> Any:
    with df.Checkpointer(run) as ckpt:
        assert ckpt.verify() == []
        return ckpt.load()


def same(found: Any, array: Any) -> bool:
    return bool(np.asarray(found).tobytes() == np.asarray(array).tobytes())


# Files of each framework


@pytest.fixture
def model() -> Any:
    keras.utils.set_random_seed(3)
    layers = [keras.layers.Dense(3), keras.layers.BatchNormalization()]
    made = keras.Sequential([keras.layers.Input((4,)), *layers])
    made.compile("adam", "mse")
    made.train_on_batch(np.ones((2, 4), np.float32), np.ones((2, 3), np.float32))
    return made


@pytest.mark.parametrize("name", ["m.keras", "m.weights.h5"])
def test_files_of_keras(name: str, model: Any, tmp_path: Path) -> None:
    source = tmp_path / name
    (model.save if name == "m.keras" else model.save_weights)(source)
    import_it(source, tmp_path / "run")
    found = loaded(tmp_path / "run")
    assert same(found["layers/dense/vars/0"], model.layers[0].kernel)
    assert same(found["layers/batch_normalization/vars/3"], model.layers[1].moving_variance)
    assert same(found["optimizer/vars/2"], model.optimizer.variables[2])


def test_a_cut_file_of_keras_is_refused(model: Any, tmp_path: Path) -> None:
    source = tmp_path / "m.weights.h5"
    model.save_weights(source)
    source.write_bytes(source.read_bytes()[:-5000])
    with pytest.raises(subprocess.CalledProcessError):
        import_it(source, tmp_path / "run")


@pytest.mark.parametrize("name", ["", "ck.index"])
def test_checkpoints_of_tensorflow(name: str, tmp_path: Path) -> None:
    module = tf.Module()
    module.weight = tf.Variable(tf.random.normal([3, 4]))
    module.steps = tf.Variable(7, dtype=tf.int64)
    tf.train.Checkpoint(net=module).write(str(tmp_path / "tf" / "ck"))
    import_it(tmp_path / "tf" / name, tmp_path / "run")
    found = loaded(tmp_path / "run")
    assert same(found["net/weight"], module.weight)
    assert same(found["net/steps"], np.int64(7))


@pytest.mark.parametrize("with_manager", [False, True])
def test_directories_of_orbax(with_manager: bool, tmp_path: Path) -> None:
    tree = {"w": jax.numpy.arange(6.0).reshape(2, 3), "more": [jax.numpy.ones(2, "bfloat16")]}
    source = tmp_path / "orbax"
    if with_manager:
        with ocp.CheckpointManager(source) as manager:
            manager.save(5, args=ocp.args.StandardSave(tree))
        source /= "5"
    else:
        ocp.PyTreeCheckpointer().save(source, tree)
    import_it(source, tmp_path / "run")
    found = loaded(tmp_path / "run")
    assert same(found["w"], tree["w"])
    more = found["more"][0]
    more = more.view(torch.int16).numpy() if isinstance(more, torch.Tensor) else more
    assert same(more, np.asarray(tree["more"][0]))


# From one framework to another


TURNED = [["transpose", 2, 1, 0]]  # a kernel of Conv1d
# torch's features are by channel, then by place; the others', by place and channel.
FLAT = [["reshape", 200, 128, LENGTH], ["transpose", 2, 1, 0], ["reshape", -1, 200]]
STEPS = {"conv1": TURNED, "conv2": TURNED, "dense1": FLAT}


def nt3_rules(kernel: str, bias: str) -> dict[str, Any]:
    rules: dict[str, Any] = {}
    for layer in ("conv1", "conv2", "dense1", "dense2", "dense3"):
        steps = STEPS.get(layer, [["transpose", 1, 0]])
        rules[kernel.format(layer)] = {"from": f"{layer}.weight", "do": steps}
        rules[bias.format(layer)] = f"{layer}.bias"
    return rules


@pytest.fixture(scope="module")
def nt3(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    """A file of torch's, an input, and torch's output for it."""
    torch.manual_seed(4)
    network = NT3(GENES).eval()
    path = tmp_path_factory.mktemp("nt3") / "nt3.pt"
    torch.save(network.state_dict(), path)
    x = torch.randn(3, 1, GENES)
    with torch.no_grad():
        return path, x.numpy(), network(x).numpy()


def restored(run: Path, live: dict[str, Any]) -> dict[str, Any]:
    with df.Checkpointer(run) as ckpt:
        ckpt.restore(live)
    return live


def test_nt3_from_torch_to_keras(nt3: tuple[Path, Any, Any], tmp_path: Path) -> None:
    path, x, wanted = nt3
    network = keras_window.nt3(GENES)
    layers = [each for each in network.layers if each.weights]
    live: dict[str, Any] = {}
    for name, layer in zip(("conv1", "conv2", "dense1", "dense2", "dense3"), layers, strict=True):
        live[f"{name}/kernel"], live[f"{name}/bias"] = layer.weights
    import_it(path, tmp_path / "run", nt3_rules("{}/kernel", "{}/bias"))
    restored(tmp_path / "run", live)
    got = network(x.transpose(0, 2, 1), training=False)
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-5)


def test_nt3_from_torch_to_flax(nt3: tuple[Path, Any, Any], tmp_path: Path) -> None:
    path, x, wanted = nt3
    network = jax_window.NT3(GENES, nnx.Rngs(0))
    network.eval()
    import_it(path, tmp_path / "run", nt3_rules("{}.kernel", "{}.bias"))
    into_flax(tmp_path / "run", network)
    got = network(x.transpose(0, 2, 1))
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-5)


def test_nt3_from_torch_to_chainer(nt3: tuple[Path, Any, Any], tmp_path: Path) -> None:
    path, x, wanted = nt3
    network = chainer_window.NT3(GENES)
    live = {name[1:]: each.array for name, each in network.namedparams()}
    rules = {name: _torch_name(name) for name in live}
    import_it(path, tmp_path / "run", rules)
    restored(tmp_path / "run", live)
    chainer = chainer_window.chainer
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        got = network(x).array
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-5)


def _torch_name(name: str) -> str:
    layer, _, kind = name.partition("/")
    return f"{layer}.{'weight' if kind == 'W' else 'bias'}"


def into_flax(run: Path, network: Any) -> None:
    """Fills a network with the values of the run, by dotted names."""
    state = nnx.state(network, nnx.Any(nnx.Param, nnx.BatchStat))
    flat = {".".join(map(str, path)): each for path, each in nnx.to_flat_state(state)}
    live = restored(run, {name: each.get_value() for name, each in flat.items()})
    for name, each in flat.items():
        each.set_value(live[name])
    nnx.update(network, state)


FLAX_NORM = {"weight": "scale", "bias": "bias", "running_mean": "mean", "running_var": "var"}


def flax_rules(names: list[str]) -> dict[str, Any]:
    """Rules that give ResNet-50 of lab.networks.jax_workloads the arrays of torch's names."""
    blocks = [f"layer{s + 1}.{i}" for s, count in enumerate((3, 4, 6, 3)) for i in range(count)]
    rules: dict[str, Any] = {}
    for name in names:
        layer, _, kind = name.rpartition(".")
        if kind == "num_batches_tracked":
            continue
        for index, block in enumerate(blocks):
            if layer.startswith(f"{block}."):
                layer = f"blocks.{index}.{layer.removeprefix(f'{block}.')}"
        layer = layer.replace("downsample.0", "shortcut").replace("downsample.1", "shortcut_bn")
        if "bn" in layer.rpartition(".")[2]:
            rules[f"{layer}.{FLAX_NORM[kind]}"] = name
        elif kind == "bias":
            rules[f"{layer}.bias"] = name
        else:
            order = [1, 0] if layer == "fc" else [2, 3, 1, 0]
            rules[f"{layer}.kernel"] = {"from": name, "do": [["transpose", *order]]}
    return rules


def test_resnet50_from_torch_to_flax(tmp_path: Path) -> None:
    torch.manual_seed(4)
    source = resnet50().train()
    with torch.no_grad():
        source(torch.randn(4, 3, 64, 64))  # statistics of its own
    source.eval()
    torch.save(source.state_dict(), tmp_path / "resnet.pt")
    rules = flax_rules(list(source.state_dict()))
    import_it(tmp_path / "resnet.pt", tmp_path / "run", rules)
    network = jax_window.ResNet50(nnx.Rngs(1))
    network.eval()
    into_flax(tmp_path / "run", network)
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        wanted = source(x).numpy()
    got = network(x.numpy().transpose(0, 2, 3, 1))
    np.testing.assert_allclose(got, wanted, rtol=1e-2, atol=1e-2 * float(np.abs(wanted).max()))
