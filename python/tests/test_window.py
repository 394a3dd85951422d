"""Capture while training continues: attach() guards its targets in every kind of loop."""

from __future__ import annotations

import dataclasses
import hashlib
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from testkit import save
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

import deepfreeze as df
from deepfreeze.saving.attached import Window
from deepfreeze.saving.guards import LAZY_BYTES_MIN, Guards

WIDTH = 256  # a weight of 256 KiB
ELEMENT_BYTES = 4


class Training:
    """A net whose every step changes every parameter."""

    def __init__(self, make_optim: Callable[[Iterable[Tensor]], torch.optim.Optimizer]) -> None:
        torch.manual_seed(3)
        self.net = nn.Sequential(
            nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, WIDTH)
        )
        self.optim = make_optim(self.net.parameters())
        self.state: dict[str, Any] = {"net": self.net, "optim": self.optim}
        self.backward()
        self.optim.step()

    def backward(self) -> None:
        self.optim.zero_grad()
        self.net(torch.randn(8, WIDTH)).square().sum().backward()

    def step(self) -> None:
        self.backward()
        self.optim.step()


def adam(parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-2)


OPTIMIZERS: dict[str, Callable[[Iterable[Tensor]], torch.optim.Optimizer]] = {
    "adam": adam,
    "adam-fused": lambda p: torch.optim.Adam(p, lr=1e-2, fused=True),
    "adam-loop": lambda p: torch.optim.Adam(p, lr=1e-2, foreach=False),
    "adamw-amsgrad": lambda p: torch.optim.AdamW(p, lr=1e-2, amsgrad=True),
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-6),
    "sgd-momentum-fused": lambda p: torch.optim.SGD(p, lr=1e-6, momentum=0.9, fused=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-2),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2),
}


def copy_of(state: dict[str, Any]) -> dict[str, Tensor]:
    """Clones of all tensors of a net and an optimizer, by name."""
    found = {f"net.{name}": each.clone() for name, each in state["net"].state_dict().items()}
    names = {id(p): name for name, p in state["net"].named_parameters()}
    for parameter, values in state["optim"].state.items():
        for key, value in values.items():
            if isinstance(value, Tensor):
                found[f"optim.state.{names[id(parameter)]}.{key}"] = value.clone()
    return found


def assert_holds(ckpt: df.Checkpointer, step: int, expected: dict[str, Tensor]) -> None:
    loaded = ckpt.load(step)
    for name, tensor in expected.items():
        found = loaded
        parts = name.split(".")
        top, rest = parts[0], ".".join(parts[1:])
        found = loaded[top]
        if top == "optim":
            parameter, key = rest.removeprefix("state.").rsplit(".", 1)
            found = loaded["optim"]["state"][parameter][key]
        else:
            found = found[rest]
        assert torch.equal(found, tensor), name


def data_section(ckpt: df.Checkpointer, step: int) -> str:
    """The SHA-256 of all bytes after the header of a step's only file."""
    info = next(info for info in ckpt.checkpoints() if info.step == step)
    (file,) = Path(info.path).glob("*.safetensors")
    whole = file.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    return hashlib.sha256(whole[header:]).hexdigest()


LATER_BYTES_MIN = 2 * WIDTH * WIDTH * ELEMENT_BYTES


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("profile", ["latency", "throughput"])
def test_a_save_holds_what_the_state_was_while_training_goes_on(
    run: Path, name: str, profile: Any
) -> None:
    training = Training(OPTIMIZERS[name])
    with df.Checkpointer(run, profile=profile) as ckpt:
        ckpt.attach(training.optim)
        expected = {}
        for step in range(1, 6):
            training.step()
            expected[step] = copy_of(training.state)
            handle = ckpt.save(step, training.state)
            assert handle is not None
            later = handle.status().guarded_bytes
            assert later == 0 if profile == "throughput" else later >= LATER_BYTES_MIN
        training.step()
        ckpt.wait()
        assert ckpt.failed_saves == 0
        for step, tensors in expected.items():
            assert_holds(ckpt, step, tensors)


def test_without_attach_nothing_is_captured_later(ckpt: df.Checkpointer) -> None:
    training = Training(adam)
    assert save(ckpt, 1, training.state).status().guarded_bytes == 0


def test_two_optimizers_have_a_fence_each(ckpt: df.Checkpointer) -> None:
    training = Training(adam)
    first = torch.optim.Adam(training.net[0].parameters())
    second = torch.optim.SGD(training.net[2].parameters(), lr=0.1, momentum=0.5)
    ckpt.attach(first)
    ckpt.attach(second)
    state = {"net": training.net, "first": first, "second": second}
    for step in range(1, 6):
        training.backward()
        second.step()
        expected = {f"net.{k}": v.clone() for k, v in training.net.state_dict().items()}
        handle = ckpt.save(step, state)
        training.backward()
        first.step()
        second.step()
        assert handle is not None
        handle.wait()
        assert_holds(ckpt, step, expected)


def test_gradients_that_accumulate_and_a_scaler(ckpt: df.Checkpointer) -> None:
    training = Training(adam)
    scaler = torch.amp.GradScaler("cpu")
    ckpt.attach(training.optim)
    for step in range(1, 5):
        for _ in range(2):
            scaler.scale(training.net(torch.randn(8, WIDTH)).square().sum()).backward()
        scaler.step(training.optim)
        scaler.update()
        expected = copy_of(training.state)
        handle = ckpt.save(step, {**training.state, "scaler": scaler})
        training.net(torch.randn(8, WIDTH)).sum().backward()  # the middle of an accumulation
        scaler.step(training.optim)
        scaler.update()
        assert handle is not None
        handle.wait()
        assert_holds(ckpt, step, expected)


def test_a_compiled_step_is_fenced(ckpt: df.Checkpointer) -> None:
    training = Training(adam)
    compiled = torch.compile(training.optim.step, backend="eager")
    ckpt.attach(training.optim)
    for step in range(1, 4):
        expected = copy_of(training.state)
        handle = ckpt.save(step, training.state)
        training.backward()
        compiled()
        assert handle is not None
        handle.wait()
        assert_holds(ckpt, step, expected)


def test_an_attached_average_and_frozen_weights_change_after_fence(ckpt: df.Checkpointer) -> None:
    training = Training(adam)
    for parameter in training.net[2].parameters():
        parameter.requires_grad_(False)
    training.optim = adam(training.net[0].parameters())
    training.step()
    average = AveragedModel(training.net)
    ckpt.attach(training.optim)
    ckpt.attach(training.net)
    ckpt.attach(average)
    state = {"net": training.net, "optim": training.optim, "average": average}
    for step in range(1, 5):
        training.step()
        expected = copy_of(training.state | {"optim": training.optim})
        handle = ckpt.save(step, state)
        assert handle is not None
        weights = 4 * WIDTH * WIDTH * ELEMENT_BYTES  # two of the net, two of the average
        assert handle.status().guarded_bytes >= weights
        ckpt.fence()
        average.update_parameters(training.net)
        training.step()
        handle.wait()
        assert_holds(ckpt, step, expected)


def test_a_change_without_fence_is_torn_and_then_eager(
    ckpt: df.Checkpointer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(adam)
    ckpt.attach(training.optim)
    changed = threading.Event()
    finish = Window.finish

    def finish_later(window: Window) -> list[str]:
        assert changed.wait(60)
        return finish(window)

    monkeypatch.setattr(Window, "finish", finish_later)
    handle = ckpt.save(1, training.state)
    assert handle is not None
    with torch.no_grad():
        training.net[0].weight.add_(1)  # seen by its counter, wherever the copy is
    changed.set()
    error = handle.durable.exception()
    assert isinstance(error, df.TornCaptureError)
    assert error.tensors == ("net.0.weight",)
    assert handle.status().torn == ("net.0.weight",)
    assert ckpt.latest() is None
    assert "net.0.weight changed while captured" in caplog.text
    before = save(ckpt, 2, training.state).status().guarded_bytes
    again = ckpt.save(3, training.state)
    assert again is not None
    with torch.no_grad():
        training.net[0].weight.add_(1)
    again.wait()
    assert again.status().guarded_bytes == before
    assert ckpt.latest() == 3


def test_both_modes_give_the_same_data_section(tmp_path: Path) -> None:
    digests = {}
    for mode in ("eager", "window", "after_update"):
        torch.manual_seed(9)
        net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))
        optims = {name: torch.optim.Adam([p]) for name, p in net.named_parameters()}
        for name, parameter in net.named_parameters():
            step_in_backward(parameter, optims[name])
        with df.Checkpointer(tmp_path / mode, profile="latency") as ckpt:
            for optim in optims.values():
                if mode != "eager":
                    ckpt.attach(optim, mode=mode)
            early = []
            for step in range(1, 5):
                net(torch.randn(8, WIDTH)).square().sum().backward()
                handle = ckpt.step(step, {"net": net, "optim": optims})
                assert handle is not None
                handle.wait()  # so that the arena is free when the next update comes
                early.append(handle.status().early)
            assert early == [False, *[mode == "after_update"] * 3] or mode != "after_update"
            digests[mode] = [data_section(ckpt, step) for step in range(1, 5)]
    assert digests["window"] == digests["eager"]
    assert digests["after_update"] == digests["eager"]


def step_in_backward(parameter: Tensor, optim: torch.optim.Optimizer) -> None:
    def hook(_: Tensor) -> None:
        optim.step()
        optim.zero_grad()

    parameter.register_post_accumulate_grad_hook(hook)


def test_an_early_capture_that_is_out_of_date_is_made_anew(ckpt: df.Checkpointer) -> None:
    training = Training(adam)
    ckpt.attach(training.optim, mode="after_update")
    first = ckpt.step(1, training.state)
    assert first is not None
    first.wait()
    training.step()
    ckpt.fence()
    with torch.no_grad():
        training.net[0].weight.add_(1)  # after its update, before its save
    expected = copy_of(training.state)
    second = ckpt.step(2, training.state)
    assert second is not None
    second.wait()
    assert_holds(ckpt, 2, expected)
    training.step()
    training.step()  # twice before the save
    expected = copy_of(training.state)
    third = ckpt.step(3, training.state)
    assert third is not None
    third.wait()
    assert_holds(ckpt, 3, expected)


def test_a_change_behind_an_early_capture_needs_no_fence(ckpt: df.Checkpointer) -> None:
    """Until save(): the counters tell that the captured values are out of date, even if one element
    changed, which the witness of the memory hardly ever sees."""
    training = Training(adam)
    ckpt.attach(training.optim, mode="after_update")
    for step in (1, 2, 3):
        if step == 3:
            with torch.no_grad():
                training.net[0].weight[1, 37] += 1
        expected = copy_of(training.state)
        handle = ckpt.step(step, training.state)
        assert handle is not None
        assert handle.status().early == (step == 2)
        handle.wait()
        assert_holds(ckpt, step, expected)
        training.step()


def test_a_state_larger_than_the_arena_streams(run: Path) -> None:
    training = Training(adam)
    training.net[0] = nn.Linear(WIDTH, 8192)  # 8 MiB, three times with its moments
    training.optim = adam(training.net[0].parameters())
    training.net[0](torch.randn(8, WIDTH)).sum().backward()
    training.optim.step()
    with df.Checkpointer(run, arena_bytes_max=8 << 20) as ckpt:
        ckpt.attach(training.optim)
        for step in range(1, 4):
            expected = training.net[0].weight.detach().clone()
            handle = ckpt.save(step, {"net": training.net[0], "optim": training.optim})
            training.optim.step()
            assert handle is not None
            handle.wait()
            assert torch.equal(ckpt.load(step, keys=["net.*"])["net"]["weight"], expected)


def test_small_tensors_are_copied_at_once(ckpt: df.Checkpointer) -> None:
    net = nn.Linear(8, LAZY_BYTES_MIN // ELEMENT_BYTES // 8 - 1)
    optim = torch.optim.SGD(net.parameters(), lr=0.1)
    ckpt.attach(optim)
    assert save(ckpt, 1, {"net": net}).status().guarded_bytes == 0


def test_detached_it_is_eager_again(ckpt: df.Checkpointer) -> None:
    training = Training(adam)
    ckpt.attach(training.optim)
    assert save(ckpt, 1, training.state).status().guarded_bytes > 0
    ckpt.detach(training.optim)
    assert save(ckpt, 2, training.state).status().guarded_bytes == 0
    assert not training.optim._optimizer_step_pre_hooks


def test_others_stay_attached_if_one_is_detached(ckpt: df.Checkpointer) -> None:
    one, other = Training(adam), Training(adam)
    ckpt.attach(one.optim)
    ckpt.attach(other.optim)
    ckpt.detach(one.optim)
    assert not one.optim._optimizer_step_pre_hooks
    assert other.optim._optimizer_step_pre_hooks
    assert save(ckpt, 1, other.state).status().guarded_bytes > 0


def test_of_what_was_detached_nothing_is_left(ckpt: df.Checkpointer) -> None:
    training = Training(adam)
    for step in range(3):
        ckpt.attach(training.optim)
        save(ckpt, step, training.state)
        training.backward()
        training.optim.step()
        ckpt.detach(training.optim)
    guards = ckpt._lazy._guards
    assert guards._numbers == 3
    assert dataclasses.replace(guards, _numbers=0) == Guards()


def test_tensors_of_two_optimizers_have_no_fence_of_their_own(ckpt: df.Checkpointer) -> None:
    training = Training(adam)
    twin = torch.optim.SGD(training.net.parameters(), lr=0.1)
    ckpt.attach(training.optim)
    both = save(ckpt, 1, training.state).status().guarded_bytes
    ckpt.attach(twin)
    alone = save(ckpt, 2, training.state).status().guarded_bytes
    weights = 2 * WIDTH * WIDTH * ELEMENT_BYTES
    assert both - alone == weights


def test_restore_waits_for_what_is_not_captured(run: Path) -> None:
    training = Training(adam)
    with df.Checkpointer(run, profile="latency") as ckpt:
        ckpt.attach(training.optim)
        save(ckpt, 1, training.state)
        expected = copy_of(training.state)
        training.step()
        second = ckpt.save(2, training.state)
        assert ckpt.restore(training.state, step=1) == 1
        assert second is not None
        assert second.durable.exception() is None
        for name, tensor in copy_of(training.state).items():
            assert torch.equal(tensor, expected[name])


@pytest.mark.parametrize("mode", ["lazy", "module", ""])
def test_an_unknown_mode_is_refused(ckpt: df.Checkpointer, mode: Any) -> None:
    with pytest.raises(ValueError, match="attach: mode"):
        ckpt.attach(Training(adam).optim, mode=mode)


def test_a_module_has_no_after_update(ckpt: df.Checkpointer) -> None:
    with pytest.raises(ValueError, match="for optimizers"):
        ckpt.attach(nn.Linear(2, 2), mode="after_update")


def test_what_is_copied_at_once_is_not_torn_by_what_comes_later(run: Path) -> None:
    weight = torch.randn(256, 256)
    optim = torch.optim.SGD([nn.Parameter(weight)], lr=0.1)
    with df.Checkpointer(run, profile="throughput") as ckpt:
        ckpt.attach(optim)
        for step in range(20):
            before = weight.clone()
            handle = ckpt.save(step, {"w": weight})
            with torch.no_grad():
                weight.add_(1)  # without a fence
            assert handle is not None
            handle.wait()
            assert handle.status().guarded_bytes == 0
            assert torch.equal(ckpt.load(step)["w"], before)


def test_an_unknown_profile_is_refused(run: Path) -> None:
    with pytest.raises(df.CheckpointError, match="auto, latency or throughput"):
        df.Checkpointer(run, profile="fast")  # type: ignore[arg-type]
