"""Features special to TensorFlow: held buffers, dtypes, objects, and no TensorFlow at all."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepfreeze as df
from deepfreeze.saving.capture import walk

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
tf = pytest.importorskip("tensorflow")

ROOT = Path(__file__).resolve().parents[2]
LARGE = [256, 256]  # 256 KiB: captured after save() has returned


@pytest.fixture
def ckpt(tmp_path: Path) -> Iterator[df.Checkpointer]:
    with df.Checkpointer(tmp_path / "run", profile="latency") as checkpointer:
        yield checkpointer


def save(ckpt: df.Checkpointer, state: Any, step: int = 1) -> df.SaveHandle:
    handle = ckpt.save(step, state)
    assert handle is not None
    handle.wait()
    return handle


def keys_of(ckpt: df.Checkpointer) -> list[str]:
    opened = df._core.open_checkpoint(ckpt.checkpoints()[0])
    return sorted(each.key for each in opened.tensors())


# Held buffers


@pytest.mark.parametrize("hold", ["held", "bare"])
def test_a_capture_that_training_runs_into(hold: str, tmp_path: Path) -> None:
    """The control: by a bare address, without the hold, the capture is torn."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.frameworks.tensorflow_tearing", hold, str(tmp_path / "run")],
        cwd=ROOT, env={**os.environ, "DEEPFREEZE_FAIL": "capture.background=sleep:20"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    whole, changed = map(int, done.stdout.split())
    if hold == "held":
        assert (whole, changed) == (20, 0)
    else:
        assert changed > 0


def test_a_gather_does_not_make_later_saves_copy() -> None:
    variable = tf.Variable(tf.ones(LARGE))
    tf.gather(variable, [1, 2])
    captures = [walk({"v": variable}) for _ in range(2)]  # copies would lie apart
    assert captures[0].entries[0].address == captures[1].entries[0].address


def module_of(**variables: Any) -> Any:
    module = tf.Module()
    for name, each in variables.items():
        setattr(module, name, each)
    return module


def test_variables_of_a_module_are_read_in_place(ckpt: df.Checkpointer) -> None:
    large, small = tf.Variable(tf.ones(LARGE)), tf.Variable([1.0, 2.0])
    any_size = tf.Variable(tf.ones(LARGE), shape=tf.TensorShape(None))
    module = module_of(large=large, small=small, any_size=any_size)
    for each in (large, small, any_size):
        tf.gather(each, [1])
    captures = [walk({"m": module}) for _ in range(2)]
    addresses = [{each.key: each.address for each in capture.entries} for capture in captures]
    for key in ("m.large", "m.any_size"):  # small ones may be copied
        assert addresses[0][key] == addresses[1][key]
    save(ckpt, {"m": module})
    small.assign([0, 0])
    assert ckpt.restore({"m": module}) == 1
    assert small.numpy().tolist() == [1.0, 2.0]


def test_two_names_of_one_variable_are_stored_once(ckpt: df.Checkpointer) -> None:
    variable = tf.Variable([1.0, 2.0])
    tf.gather(variable, [1])  # each read of a small variable gives a copy now
    unread = variable.assign_add([1.0, 1.0])
    assert unread is not variable
    save(ckpt, {"m": module_of(a=variable, b=unread), "c": variable})
    assert keys_of(ckpt) == ["m.a"]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("no value", r"m\.bad: bad:0 has no value yet"),
        ("text", r"m\.bad: values of string can't be stored"),
    ],
)
def test_a_variable_of_a_module_that_can_not_be_read(
    bad: str, message: str, ckpt: df.Checkpointer
) -> None:
    from tensorflow.python.ops.resource_variable_ops import UninitializedVariable

    if bad == "text":
        variable = tf.Variable("text")
    else:
        variable = UninitializedVariable(dtype=tf.float32, shape=[2], name="bad")
    with pytest.raises(df.EncodeError, match=message):
        walk({"m": module_of(good=tf.Variable(1.0), bad=variable)})


def test_what_is_large_is_captured_after_save_has_returned(ckpt: df.Checkpointer) -> None:
    state = {"large": tf.Variable(tf.ones(LARGE)), "small": tf.Variable(tf.ones([4]))}
    assert save(ckpt, state).status().guarded_bytes == 256 * 256 * 4


def test_a_shared_buffer_is_stored_once(ckpt: df.Checkpointer) -> None:
    one, other = tf.Variable(tf.ones(LARGE)), tf.Variable(tf.zeros(LARGE))
    one.assign(other)
    save(ckpt, {"a": one, "b": other, "c": [one]})
    assert keys_of(ckpt) == ["a"]
    assert ckpt.restore({"a": one, "b": other, "c": [one]}) == 1
    one.assign_add(tf.ones(LARGE))
    assert float(tf.reduce_sum(other)) == 0.0


def test_a_restored_variable_has_memory_of_its_own(ckpt: df.Checkpointer) -> None:
    variable = tf.Variable(tf.ones(LARGE))
    save(ckpt, {"v": variable, "w": [variable], "x": variable.value()})
    state: dict[str, Any] = {"v": variable, "w": [None], "x": tf.zeros(LARGE)}
    ckpt.restore(state)
    state["w"][0] += 1  # an array, of the memory that was read into
    assert float(tf.reduce_sum(variable)) == float(tf.reduce_sum(state["x"])) == 256 * 256
    variable.assign_add(tf.ones(LARGE))
    assert float(tf.reduce_sum(state["x"])) == 256 * 256


# Dtypes

STORABLE = [
    "float16", "bfloat16", "float32", "float64", "bool", "int8", "int16", "int32", "int64",
    "uint8", "uint16", "uint32", "uint64", "complex64", "complex128", "float8_e4m3fn",
    "float8_e5m2", "int4", "uint4",
]  # fmt: skip


@pytest.mark.parametrize("name", STORABLE)
def test_comes_back(name: str, ckpt: df.Checkpointer) -> None:
    dtype = tf.dtypes.as_dtype(name).as_numpy_dtype
    values, zeros = np.arange(4).astype(dtype), np.zeros(4, dtype)
    state = {"v": tf.Variable(values), "t": tf.constant(values), "n": tf.Variable(values[1])}
    save(ckpt, state)
    live = {"v": tf.Variable(zeros), "t": tf.constant(zeros), "n": tf.Variable(zeros[1])}
    ckpt.restore(live)
    for key, each in state.items():
        assert live[key].dtype == each.dtype
        assert live[key].numpy().tobytes() == each.numpy().tobytes()


@pytest.mark.parametrize("kind", ["string", "qint8", "variant", "resource"])
def test_is_refused_by_name_and_ends_no_process(kind: str, ckpt: df.Checkpointer) -> None:
    value = {
        "string": lambda: tf.Variable("text"),
        "qint8": lambda: tf.quantization.quantize([1.0], 0.0, 2.0, tf.qint8).output,
        "variant": lambda: tf.data.experimental.to_variant(tf.data.Dataset.range(2)),
        "resource": lambda: tf.Variable(1.0).handle,
    }[kind]()
    with pytest.raises(df.EncodeError, match=r"inner\.value"):
        ckpt.save(1, {"inner": {"value": value}})


# Mismatches


def test_what_does_not_fit_is_named_before_anything_changes(ckpt: df.Checkpointer) -> None:
    save(ckpt, {"a": tf.Variable([1.0]), "b": tf.Variable([1.0]), "c": tf.Variable([1.0])})
    live = {
        "a": tf.Variable([5.0]), "b": tf.Variable([5.0, 5.0]), "c": tf.Variable([5]),
        "d": tf.Variable([5.0]),
    }  # fmt: skip
    with pytest.raises(df.MismatchError) as raised:
        ckpt.restore(live)
    for text in ("b: stored float32[1], live float32[2]", "c: stored float32[1], live int32[1]"):
        assert text in str(raised.value)
    assert "missing in the checkpoint: d" in str(raised.value)
    assert live["a"].numpy() == [5.0]


# Objects


class Tower(tf.Module):
    """Layers in a list, one of them a second time, a dict and a generator."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.layers = [tf.Variable([value]), tf.Variable([value + 1])]
        self.named = {"scale": tf.Variable(value)}
        self.again = self.layers[1]
        self.generator = tf.random.Generator.from_seed(int(value))


def test_a_module_is_stored_by_the_names_of_its_attributes(ckpt: df.Checkpointer) -> None:
    saved, live = Tower(1.0), Tower(7.0)
    save(ckpt, {"net": saved})
    expected = saved.generator.uniform([3]).numpy()
    assert keys_of(ckpt) == [
        "net.generator.state", "net.layers.0", "net.layers.1", "net.named.scale",
    ]  # fmt: skip
    ckpt.restore({"net": live})
    assert live.layers[1].numpy() == [2.0]
    assert live.again is live.layers[1]
    assert (live.generator.uniform([3]).numpy() == expected).all()


def test_a_generator_of_another_algorithm_is_refused(ckpt: df.Checkpointer) -> None:
    save(ckpt, {"rng": tf.random.Generator.from_seed(1, alg="philox")})
    live = tf.random.Generator.from_seed(2, alg="threefry")
    with pytest.raises(df.MismatchError, match="rng: stored algorithm"):
        ckpt.restore({"rng": live})


def test_a_table_is_refused_by_name(ckpt: df.Checkpointer) -> None:
    holder = tf.Module()
    holder.table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0)
    with pytest.raises(df.EncodeError, match=r"net\.table: a MutableHashTable"):
        ckpt.save(1, {"net": holder})


def rows(seed: int) -> Any:
    shuffled = tf.data.Dataset.range(50).shuffle(20, seed=seed, reshuffle_each_iteration=True)
    return iter(shuffled.repeat(3).batch(4))


def test_an_iterator_goes_on_at_its_position(ckpt: df.Checkpointer) -> None:
    saved, live = rows(3), rows(3)
    for _ in range(20):
        next(saved)
    save(ckpt, {"data": saved})
    expected = [each.numpy().tolist() for each in saved]
    ckpt.restore({"data": live})
    assert [each.numpy().tolist() for each in live] == expected


def test_an_iterator_without_a_position_is_refused(ckpt: df.Checkpointer) -> None:
    dataset = tf.data.Dataset.from_generator(lambda: iter(range(9)), output_types=tf.int64)
    with pytest.raises(df.EncodeError, match=r"data: this iterator can't say its position"):
        ckpt.save(1, {"data": iter(dataset)})


def test_saving_within_a_tf_function_is_refused(ckpt: df.Checkpointer) -> None:
    variable = tf.Variable([1.0])

    @tf.function(autograph=False)
    def step() -> None:
        ckpt.save(1, {"v": variable})

    with pytest.raises(df.EncodeError, match=r"v: within a tf\.function"):
        step()


# Without TensorFlow


def test_loads_where_tensorflow_is_not_imported(ckpt: df.Checkpointer) -> None:
    save(ckpt, {"net": Tower(1.0), "data": rows(1), "b": tf.Variable(tf.ones([2], tf.bfloat16))})
    program = (
        "import sys, deepfreeze as df\n"
        f"state = df.Checkpointer({str(ckpt.path)!r}).load()\n"
        "assert 'tensorflow' not in sys.modules and 'torch' not in sys.modules\n"
        "print(type(state['net']['layers.0']).__name__, float(state['net']['layers.1'][0]),\n"
        "      str(state['b'].dtype))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["ndarray", "2.0", "bfloat16"], done.stderr


def test_the_example_of_its_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs/frameworks/tensorflow.md").read_text()
    example = page.split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    for _ in range(2):  # the second time it resumes
        exec(compile(example, "tensorflow.md", "exec"), {})
    with df.Checkpointer("runs/tensorflow") as ckpt:
        assert ckpt.latest() == 200


def test_a_data_set_is_no_state(ckpt: df.Checkpointer) -> None:
    with pytest.raises(df.EncodeError, match=r"ds: a data set has no position .* iter\(\)"):
        ckpt.save(1, {"ds": tf.data.Dataset.range(10), "v": tf.Variable(1.0)})


def test_two_attributes_of_one_name_are_told_of(ckpt: df.Checkpointer) -> None:
    module = tf.Module()
    module.d = {"a.b": tf.Variable(1.0), "a": {"b": tf.Variable(2.0)}}
    with pytest.raises(df.EncodeError, match=r"m\.d\.a.*b: two attributes have this name"):
        ckpt.save(1, {"m": module})


@pytest.mark.parametrize("shape", [tf.TensorShape(None), tf.TensorShape([None, 4])])
def test_dimensions_of_any_size(shape: Any, ckpt: df.Checkpointer) -> None:
    variable = tf.Variable(tf.zeros([0, 4]), shape=shape, validate_shape=False)
    variable.assign(tf.ones([5, 4]))
    save(ckpt, {"v": variable})
    variable.assign(tf.zeros([2, 4]))
    ckpt.restore({"v": variable})
    assert variable.numpy().tolist() == np.ones((5, 4)).tolist()
    other = tf.Variable(tf.zeros([2, 3]), shape=tf.TensorShape([None, 3]))
    with pytest.raises(df.MismatchError, match=r"v: stored float32\[5, 4\], live float32\[-1, 3\]"):
        ckpt.restore({"v": other})
