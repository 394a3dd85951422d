"""Features special to Chainer: state that its snapshots leave out, arrays written in place."""

from __future__ import annotations

import copy
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepfreeze as df
from deepfreeze.saving.capture import walk

from . import conformance

chainer_net = pytest.importorskip("tests.frameworks.chainer_net")

chainer: Any = chainer_net.chainer
F, L = chainer.functions, chainer.links
ROOT = Path(__file__).resolve().parents[2]
OPTIMIZERS = sorted(
    name for name, kind in vars(chainer.optimizers).items()
    if isinstance(kind, type) and issubclass(kind, chainer.GradientMethod)
)  # fmt: skip
LARGE = 160  # a weight of 100 KiB


class Small(chainer.Chain):
    def __init__(self, inputs: int | None = LARGE, outputs: int = LARGE) -> None:
        super().__init__()
        with self.init_scope():
            self.linear = L.Linear(inputs, outputs)
            self.norm = L.BatchNormalization(outputs)

    def loss(self, x: Any) -> Any:
        return F.mean(F.square(F.dropout(self.norm(self.linear(x)), 0.1)))


def batch(step: int, dtype: str = "float32") -> Any:
    return np.random.RandomState(step).standard_normal((8, LARGE)).astype(dtype)


def train(net: Any, optimizer: Any, first: int, last: int) -> None:
    for step in range(first, last + 1):
        optimizer.update(net.loss, batch(step, str(chainer.get_dtype())))


def state_of(net: Any, optimizer: Any) -> dict[str, Any]:
    return {"net": net, "optim": optimizer, "rng": df.RNG()}


def digest(net: Any, optimizer: Any) -> str:
    names = {f"net/{name}": each for name, each in chainer_net.serialized(net).items()}
    return chainer_net.digest(names | chainer_net.serialized(optimizer))


@pytest.mark.filterwarnings("ignore:invalid value")  # MSVAG divides by zero, and expects to
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_resumes_bit_for_bit(name: str, tmp_path: Path) -> None:
    chainer_net.seed_generators(1)
    net = Small()
    optimizer = getattr(chainer.optimizers, name)().setup(net)
    with df.Checkpointer(tmp_path) as ckpt:
        ckpt.attach(optimizer)
        train(net, optimizer, 1, 3)
        ckpt.save(3, state_of(net, optimizer)).wait("durable")
        train(net, optimizer, 4, 6)
        wanted = digest(net, optimizer)
        chainer_net.seed_generators(2)
        other = Small()
        again = getattr(chainer.optimizers, name)().setup(other)
        assert ckpt.restore(state_of(other, again)) == 3
        train(other, again, 4, 6)
        assert digest(other, again) == wanted


def test_hyperparameters_may_be_arrays_of_no_dimension(tmp_path: Path) -> None:
    optimizer = chainer.optimizers.MomentumSGD(lr=np.array(0.1)).setup(Small())
    with df.Checkpointer(tmp_path) as ckpt:
        optimizer.lr *= 0.5
        ckpt.save(1, {"optim": optimizer}).wait("durable")
        for lr in (np.array(0.1), 0.1):
            other = chainer.optimizers.MomentumSGD(lr=lr).setup(Small())
            ckpt.restore({"optim": other})
            assert (other.lr, other.momentum) == (0.05, 0.9)


def test_rolls_back_to_before_the_first_update(tmp_path: Path) -> None:
    net = Small()
    optimizer = chainer.optimizers.Adam().setup(net)
    with df.Checkpointer(tmp_path) as ckpt:
        before = digest(net, optimizer)
        ckpt.save(0, state_of(net, optimizer)).wait("durable")
        train(net, optimizer, 1, 2)
        ckpt.restore(state_of(net, optimizer))
        assert digest(net, optimizer) == before
        assert net.linear.W.update_rule.state is None


def test_fills_parameters_that_no_forward_pass_has_shaped(tmp_path: Path) -> None:
    chainer_net.seed_generators(1)
    net = Small()
    optimizer = chainer.optimizers.Adam().setup(net)
    train(net, optimizer, 1, 2)
    with df.Checkpointer(tmp_path) as ckpt:
        ckpt.save(2, state_of(net, optimizer)).wait("durable")
        wanted = digest(net, optimizer)
        other = Small(None)
        again = chainer.optimizers.Adam().setup(other)
        ckpt.restore(state_of(other, again))
        assert digest(other, again) == wanted


def test_parameters_without_a_shape_that_get_another_dtype_are_warned_of(tmp_path: Path) -> None:
    with df.Checkpointer(tmp_path) as ckpt:
        ckpt.save(1, {"net": L.Linear(8, 4, nobias=True)}).wait("durable")
        with chainer.using_config("dtype", np.float16):
            other = L.Linear(None, 4, nobias=True)
            with pytest.warns(UserWarning, match=r"net\.W: stored float32, made float16"):
                ckpt.restore({"net": other})
    assert other.W.shape == (4, 8)


def test_restores_what_chainers_snapshot_of_mixed_precision_leaves_out(tmp_path: Path) -> None:
    def made() -> tuple[Any, Any]:
        net = Small()
        optimizer = chainer.optimizers.MomentumSGD(lr=0.1)
        optimizer.use_fp32_update()
        optimizer.setup(net).loss_scaling(interval=3)
        return net, optimizer

    def all_of(net: Any, optimizer: Any) -> tuple[Any, ...]:
        halves = [each for each in net.params() if each.dtype == np.float16]
        masters = [each.update_rule._fp32_param.array.tobytes() for each in halves]
        scaling = optimizer._loss_scale, optimizer._loss_scaling_isnan_ever
        return digest(net, optimizer), masters, scaling

    with (
        chainer.using_config("dtype", chainer.mixed16),
        df.Checkpointer(tmp_path) as ckpt,
    ):
        chainer_net.seed_generators(1)
        net, optimizer = made()
        ckpt.attach(optimizer)
        train(net, optimizer, 1, 3)
        assert net.linear.W.dtype == np.float16
        saved = all_of(net, optimizer)
        ckpt.save(3, state_of(net, optimizer)).wait("durable")
        train(net, optimizer, 4, 6)
        wanted = all_of(net, optimizer)
        other, again = made()
        ckpt.restore(state_of(other, again))
        assert all_of(other, again) == saved
        assert saved[2][0] > 1
        train(other, again, 4, 6)
        assert all_of(other, again) == wanted


@pytest.mark.parametrize("dtype", [chainer.mixed16, np.float16, np.float32])
@pytest.mark.parametrize("updates", [0, 3])
def test_fills_masters_of_parameters_without_a_shape(
    dtype: Any, updates: int, tmp_path: Path
) -> None:
    def made() -> tuple[Any, Any]:
        net = Small(None)
        optimizer = chainer.optimizers.MomentumSGD(lr=0.1)
        optimizer.use_fp32_update()
        return net, optimizer.setup(net)

    def masters(net: Any) -> list[bytes]:
        found = [each.update_rule._fp32_param for each in net.params()]
        return [each.array.tobytes() for each in found if each is not None]

    with chainer.using_config("dtype", dtype), df.Checkpointer(tmp_path) as ckpt:
        net, optimizer = made()
        train(net, optimizer, 1, updates)
        ckpt.save(3, state_of(net, optimizer)).wait("durable")
        other, again = made()
        ckpt.restore(state_of(other, again))
        assert bool(masters(other)) == (updates > 0 and dtype != np.float32)
        for _ in range(2):
            assert masters(other) == masters(net)
            assert other.linear.W.dtype == net.linear.W.dtype
            for each in (net, optimizer), (other, again):
                chainer_net.seed_generators(2)  # the first ones' parameters may be drawn only now
                train(*each, 4, 5)
        assert digest(other, again) == digest(net, optimizer)


def test_an_iterator_goes_on_in_the_middle_of_its_epoch(tmp_path: Path) -> None:
    def made(seed: int) -> Any:
        np.random.seed(seed)
        return chainer.iterators.SerialIterator(list(range(100)), 7)

    iterator = made(1)
    for _ in range(20):  # of the second epoch
        iterator.next()
    with df.Checkpointer(tmp_path) as ckpt:
        ckpt.save(20, {"data": iterator}).wait("durable")
        wanted = [iterator.next() for _ in range(8)]
        other = made(2)
        ckpt.restore({"data": other})
    assert (other.epoch, other.current_position) == (1, 40)
    assert [other.next() for _ in range(8)] == wanted


def test_the_generator_of_an_iterators_order_goes_on(tmp_path: Path) -> None:
    def made(seed: int) -> Any:
        sampler = chainer.iterators.ShuffleOrderSampler(np.random.RandomState(seed))
        return chainer.iterators.SerialIterator(list(range(20)), 4, order_sampler=sampler)

    iterator, other = made(1), made(2)
    iterator.next()
    with df.Checkpointer(tmp_path) as ckpt:
        ckpt.save(1, {"data": iterator}).wait("durable")
        ckpt.restore({"data": other})
        assert [other.next() for _ in range(12)] == [iterator.next() for _ in range(12)]
        another = np.random.Generator(np.random.PCG64(1))
        other.order_sampler = chainer.iterators.ShuffleOrderSampler(another)
        with pytest.raises(df.MismatchError, match=r"_random:numpy\.RandomState\.MT19937"):
            ckpt.restore({"data": other})


@pytest.mark.parametrize("at", [3, 4, 5, 6])  # an epoch has five batches
def test_saves_change_nothing_of_what_was_read_ahead(at: int, tmp_path: Path) -> None:
    def made(seed: int) -> Any:
        np.random.seed(seed)
        return chainer.iterators.MultithreadIterator(list(range(20)), 4)

    iterator = made(1)
    wanted = [iterator.next() for _ in range(12)]
    iterator = made(1)
    found = [iterator.next() for _ in range(at)]
    with df.Checkpointer(tmp_path) as ckpt:
        ckpt.save(at, {"data": iterator, "rng": df.RNG()}).wait("durable")
        assert found + [iterator.next() for _ in range(at, 12)] == wanted
        for seed in (2, 3):  # the second restores a save of the restored state
            iterator = made(seed)
            ckpt.restore({"data": iterator, "rng": df.RNG()})
            ckpt.save(at + seed, {"data": iterator, "rng": df.RNG()}).wait("durable")
        assert [iterator.next() for _ in range(at, 12)] == wanted[at:]
        ckpt.restore({"data": iterator, "rng": df.RNG()})
        assert [iterator.next() for _ in range(at, 12)] == wanted[at:]


def test_a_batch_longer_than_an_epoch_that_was_read_ahead_is_warned_of(tmp_path: Path) -> None:
    iterator = chainer.iterators.MultithreadIterator(list(range(4)), 9)
    iterator.next()
    with (
        df.Checkpointer(tmp_path) as ckpt,
        pytest.warns(UserWarning, match="longer than an epoch"),
    ):
        ckpt.save(1, {"data": iterator}).wait("durable")


def test_another_optimizer_is_refused_and_nothing_changed(tmp_path: Path) -> None:
    net = Small()
    optimizer = chainer.optimizers.Adam().setup(net)
    train(net, optimizer, 1, 1)
    with df.Checkpointer(tmp_path) as ckpt:
        ckpt.save(1, {"optim": optimizer}).wait("durable")
        other = chainer.optimizers.RMSprop().setup(Small())
        before = chainer_net.serialized(other)
        with pytest.raises(df.MismatchError, match=r"not in the state: .*optim\.linear/W/m,"):
            ckpt.restore({"optim": other})
        assert chainer_net.serialized(other).keys() == before.keys()


def test_state_that_is_not_made_yet_must_have_the_shape_of_its_parameter(tmp_path: Path) -> None:
    net = Small()
    optimizer = chainer.optimizers.Adam().setup(net)
    train(net, optimizer, 1, 1)
    other = chainer.optimizers.Adam().setup(Small(outputs=LARGE + 1))
    with df.Checkpointer(tmp_path) as ckpt:
        ckpt.save(1, {"optim": optimizer}).wait("durable")
        with pytest.raises(
            df.MismatchError, match=r"optim\.linear/W/m: stored float32\[160, 160\]"
        ):
            ckpt.restore({"optim": other})
    assert other.t == 0


def test_a_read_only_array_is_refused_and_nothing_changed(tmp_path: Path) -> None:
    net, other = Small(), Small()
    other.linear.W.array = np.zeros((LARGE, LARGE), np.float32)
    other.linear.W.array.setflags(write=False)
    before = other.norm.gamma.array.copy()
    net.norm.gamma.array += 1
    with df.Checkpointer(tmp_path) as ckpt:
        ckpt.save(1, {"net": net}).wait("durable")
        with pytest.raises(df.MismatchError, match=r"net\.linear/W: the live array is read-only"):
            ckpt.restore({"net": other})
    assert np.array_equal(other.norm.gamma.array, before)


def test_patterns_choose_layers(tmp_path: Path) -> None:
    net, other = Small(), Small()
    kept = other.norm.gamma.array.copy() + 1
    other.norm.gamma.array[...] = kept
    with df.Checkpointer(tmp_path) as ckpt:
        ckpt.save(1, {"net": net}).wait("durable")
        ckpt.restore({"net": other}, keys=["net.linear/*"])
    assert np.array_equal(other.linear.W.array, net.linear.W.array)
    assert np.array_equal(other.norm.gamma.array, kept)


def test_loads_without_chainer(tmp_path: Path) -> None:
    net = Small()
    with df.Checkpointer(tmp_path) as ckpt:
        ckpt.save(1, {"net": net}).wait("durable")
        loaded = ckpt.load()["net"]
    program = (
        "import sys, deepfreeze as df; net = df.Checkpointer(sys.argv[1]).load()['net'];"
        "assert 'chainer' not in sys.modules; print(net['linear/W'].tobytes().hex())"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == net.linear.W.array.tobytes().hex()
    np.savez(tmp_path / "net.npz", **loaded)
    other = Small()
    chainer.serializers.load_npz(tmp_path / "net.npz", other)
    assert np.array_equal(other.linear.W.array, net.linear.W.array)


# Guards


def guarded(ckpt: Any, state: dict[str, Any]) -> set[str]:
    capture = walk(state)
    ckpt._lazy.watch(capture)
    return {entry.key for entry in capture.entries if entry.guard}


def test_guards_what_the_optimizer_writes_and_nothing_else(tmp_path: Path) -> None:
    net = Small()
    net.add_persistent("average", np.zeros((LARGE, LARGE), np.float32))  # written in forward, say
    optimizer = chainer.optimizers.SMORMS3().setup(net)
    train(net, optimizer, 1, 1)
    with df.Checkpointer(tmp_path) as ckpt:
        state = state_of(net, optimizer)
        assert guarded(ckpt, state) == set()
        ckpt.attach(optimizer)
        own = {"net.linear/W", *(f"optim.linear/W/{slot}" for slot in ("g", "g2", "mem"))}
        assert guarded(ckpt, state) == own
        train(net, optimizer, 2, 2)
        assert guarded(ckpt, state) == own  # its slots are other arrays now
        optimizer.setup(net)  # which forgets all hooks
        assert guarded(ckpt, state) == set()


def test_a_copy_is_not_attached_and_detach_takes_the_hook_back(tmp_path: Path) -> None:
    net = Small()
    optimizer = chainer.optimizers.Adam().setup(net)
    with df.Checkpointer(tmp_path) as ckpt:
        ckpt.attach(optimizer)
        ckpt.attach(optimizer)
        (fence,) = optimizer._hookable._pre_update_hooks.values()
        (copied,) = copy.deepcopy(optimizer)._hookable._pre_update_hooks.values()
        assert type(copied) is not type(fence)
        copied(optimizer)
        ckpt.detach(optimizer)
        assert not optimizer._hookable._pre_update_hooks
        ckpt.attach(optimizer)
    assert not optimizer._hookable._pre_update_hooks  # close() has taken it


def test_the_fence_stands_before_other_hooks(tmp_path: Path) -> None:
    optimizer = chainer.optimizers.Adam().setup(Small())
    optimizer.add_hook(chainer.optimizer_hooks.WeightDecay(0.1))
    with df.Checkpointer(tmp_path) as ckpt:
        ckpt.attach(optimizer)
        assert [*optimizer._hookable._pre_update_hooks][1:] == ["WeightDecay"]


def test_refuses_what_it_can_not_guard(tmp_path: Path) -> None:
    class NoHooks(chainer.Optimizer):
        pass

    with df.Checkpointer(tmp_path) as ckpt:
        with pytest.raises(TypeError, match="NoHooks is no GradientMethod"):
            ckpt.attach(NoHooks())
        with pytest.raises(ValueError, match="setup"):
            ckpt.attach(chainer.optimizers.Adam())
        with pytest.raises(ValueError, match="after_update"):
            ckpt.attach(chainer.optimizers.Adam().setup(Small()), mode="after_update")
        with pytest.raises(TypeError, match="Small is no optimizer"):
            ckpt.attach(Small())


TORN = """
import sys, numpy as np, deepfreeze as df
from tests.frameworks.test_chainer import *

net = Small()
optimizer = chainer.optimizers.Adam().setup(net)
train(net, optimizer, 1, 1)
ckpt = df.Checkpointer(sys.argv[1], profile="latency")
ckpt.attach(optimizer)
handle = ckpt.save(1, state_of(net, optimizer))
exec(sys.argv[2])
try:
    handle.wait("durable")
except df.TornCaptureError as error:
    print(*error.tensors)
"""


@pytest.mark.parametrize(
    ("write", "paranoid", "torn"),
    [
        ("net.linear.W.array *= 2", "0", "net.linear/W"),
        ("net.linear.W.update_rule.state['v'] *= 2", "0", "optim.linear/W/v"),
        ("net.linear.W.array[0, 0] += 1", "1", "net.linear/W"),
        ("net.linear.W.array = net.linear.W.array * 2", "0", ""),  # the saved array is untouched
        ("ckpt.fence(); net.linear.W.array *= 2", "0", ""),
        ("train(net, optimizer, 2, 2)", "1", ""),
    ],
)
def test_finds_writes_behind_the_fence(
    write: str, paranoid: str, torn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPFREEZE_FAIL", "capture.background=sleep:200")
    monkeypatch.setenv("DEEPFREEZE_PARANOID", paranoid)
    command = [sys.executable, "-c", TORN, str(tmp_path), write]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == torn


def test_another_version_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    from deepfreeze.frameworks.chainer.adapter import warn_if_untested

    monkeypatch.setattr(chainer, "__version__", "7.9.0")
    warn_if_untested.cache_clear()
    with pytest.warns(UserWarning, match=r"tested with Chainer 7\.8\.1, this is 7\.9\.0"):
        warn_if_untested()


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed here")
@pytest.mark.parametrize(
    "case",
    ["resumes_bit_for_bit", "stores_what_was_there_at_each_save", "stores_shared_arrays_once"],
)
def test_torch_beside_it_changes_nothing(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes arrays along with its tensors then."""
    for name, value in conformance.SLOW.items():
        monkeypatch.setenv(name, value)
    program = f"import torch, runpy; runpy.run_module({conformance.MODULE!r}, run_name='__main__')"
    command = [sys.executable, "-c", program, "chainer", "--case", case]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("used", [0, 1], ids=["fresh", "used"])
def test_without_strict_what_has_another_shape_stays(tmp_path: Path, used: int) -> None:
    """Its optimizer's state too, which a fresh one makes at its first update."""

    def made(outputs: int) -> Any:
        net = chainer.Sequential(L.Linear(3, 4), L.Linear(4, outputs))
        optimizer = chainer.optimizers.Adam().setup(net)
        return net, optimizer, lambda: F.sum(net(np.ones((2, 3), np.float32)))

    net, optimizer, loss = made(2)
    optimizer.update(loss)
    other, live, its_loss = made(5)
    for _ in range(used):
        live.update(its_loss)
    before = other[1].W.array.copy()
    with df.Checkpointer(tmp_path / "run") as ckpt:
        ckpt.save(1, {"net": net, "optim": optimizer}).wait("durable")
        with pytest.raises(
            df.MismatchError, match=r"1/W: stored float32\[2, 4\], live float32\[5, 4\]"
        ):
            ckpt.restore({"net": other, "optim": live})
        ckpt.restore({"net": other, "optim": live}, strict=False)
        report = ckpt.last_restore
    assert report is not None
    assert {"net.1/W", "net.1/b", "optim.1/W/m", "optim.1/b/v"} <= report.mismatched.keys()
    assert np.array_equal(other[0].W.array, net[0].W.array)
    assert np.array_equal(other[1].W.array, before)
    for name in ("m", "v"):
        stored, found = (each[0].W.update_rule.state[name] for each in (net, other))
        assert np.array_equal(stored, found)
    live.update(its_loss)
