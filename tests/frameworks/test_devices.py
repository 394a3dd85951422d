"""The torch adapter with tensors on devices, on the fake driver."""

from __future__ import annotations

import gc
import logging
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import deepfreeze as df

from .fake_devices import FakeDevices

SIZE = 300  # its square is more than one block


@pytest.fixture
def devices() -> Iterator[FakeDevices]:
    fake = FakeDevices()
    yield fake
    gc.collect()
    fake.let_go()
    fake.wait()
    complaints = fake.complaints()
    fake.leave()
    assert complaints == []


def make_net() -> tuple[nn.Module, torch.optim.Optimizer]:
    net = nn.Sequential(nn.Linear(SIZE, SIZE), nn.BatchNorm1d(SIZE))
    return net, torch.optim.Adam(net.parameters(), lr=0.1)


def update(devices: FakeDevices, net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    devices.wait()  # batch norm changes buffers that nothing guards
    net(torch.randn(8, SIZE)).square().mean().backward()
    optimizer.step()


def attach(
    ckpt: df.Checkpointer, devices: FakeDevices, net: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """And one update that runs its hooks: from then on there are fences."""
    ckpt.attach(optimizer)
    update(devices, net, optimizer)
    optimizer.zero_grad()


def copied(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], rtol=0, atol=0)


def test_what_is_on_devices_comes_back_into_them(devices: FakeDevices, tmp_path: Path) -> None:
    net, optimizer = make_net()
    update(devices, net, optimizer)
    with df.Checkpointer(tmp_path / "run") as ckpt:
        ckpt.save(1, {"net": net, "optim": optimizer}).wait("durable")
        before = copied(net)
        update(devices, net, optimizer)
        uploads = devices.calls("cuMemcpyHtoDAsync_v2")
        assert ckpt.restore({"net": net, "optim": optimizer}) == 1
        assert_same(copied(net), before)
        # Weights, biases and averages of two layers, two moments of each weight.
        assert devices.calls("cuMemcpyHtoDAsync_v2") - uploads >= 10


def test_a_step_waits_for_the_copies_by_its_streams(devices: FakeDevices, tmp_path: Path) -> None:
    net, optimizer = make_net()
    with df.Checkpointer(tmp_path / "run") as ckpt:
        attach(ckpt, devices, net, optimizer)
        devices.hold()

        def work_comes(*_: object) -> None:
            devices.let_go()
            devices.wait()

        optimizer.register_step_pre_hook(work_comes)
        handle = ckpt.save(1, {"net": net, "optim": optimizer})
        assert handle is not None
        assert not handle.captured.done()
        before = copied(net)
        net[0](torch.randn(8, SIZE)).square().mean().backward()  # type: ignore[index]
        optimizer.step()  # returns from our hook with nothing copied yet: else it would not at all
        handle.wait("durable")
        ckpt.restore({"net": net, "optim": optimizer})
        assert_same(copied(net), before)


def bytes_of(value: int) -> Tensor:
    return torch.full((SIZE, SIZE), value, dtype=torch.uint8)


@pytest.mark.parametrize("attached", [False, True])
def test_work_of_the_stream_is_in_its_order(
    devices: FakeDevices, tmp_path: Path, attached: bool
) -> None:
    """Given before save() it is in the checkpoint, given after it is not, done or not."""
    x = nn.Parameter(bytes_of(0), requires_grad=False)
    optimizer = torch.optim.SGD([x])
    with df.Checkpointer(tmp_path / "run") as ckpt:
        if attached:
            ckpt.attach(optimizer)
            optimizer.step()  # from here on there are fences
        for step in (1, 2, 3):
            devices.fill(x, step)
            devices.hold()
            handle = ckpt.save(step, {"x": x})
            assert handle is not None
            if attached:
                ckpt.fence()
            devices.fill(x, 9)
            time.sleep(0.1)  # without an order it is done by now
            devices.let_go()
            handle.wait("durable")
        for step in (1, 2, 3):
            devices.fill(x, 7)  # not done yet when the restore begins
            ckpt.restore({"x": x}, step=step)
            assert torch.equal(x, bytes_of(step))
        devices.wait()


def test_a_fence_does_not_wait_for_copies(
    devices: FakeDevices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "deepfreeze.saving.handle._POLL_SECONDS", 3600.0
    )  # would it, it would so long
    with df.Checkpointer(tmp_path / "run") as ckpt:
        devices.hold()
        handle = ckpt.save(1, {"x": bytes_of(1)})
        fence = threading.Thread(target=ckpt.fence, daemon=True)
        fence.start()
        fence.join(20)
        has_returned = not fence.is_alive()
        devices.let_go()
        assert has_returned
        assert handle is not None
        handle.wait("durable")


def test_behind_dcp_it_is_in_its_order_as_well(devices: FakeDevices, tmp_path: Path) -> None:
    from torch.distributed import checkpoint

    from deepfreeze.dcp import StorageReader, StorageWriter

    x, back = bytes_of(0), bytes_of(0)
    with StorageWriter(tmp_path / "run") as writer:
        devices.fill(x, 5, millis=1000)
        checkpoint.save({"x": x}, storage_writer=writer, no_dist=True)
    checkpoint.load({"x": back}, storage_reader=StorageReader(tmp_path / "run"), no_dist=True)
    assert torch.equal(back, bytes_of(5))


def test_the_first_save_is_prewarmed(devices: FakeDevices, tmp_path: Path) -> None:
    with df.Checkpointer(tmp_path / "run") as ckpt:
        state = {"x": bytes_of(1)}
        ckpt.prewarm(state)
        assert devices.calls("cuMemHostRegister_v2") == 1
        ckpt.save(1, state).wait("durable")
        assert devices.calls("cuMemHostRegister_v2") == 1


def test_small_tensors_on_devices_have_their_fence_too(
    devices: FakeDevices, tmp_path: Path
) -> None:
    net, optimizer = nn.Linear(4, 4), None
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with df.Checkpointer(tmp_path / "run") as ckpt:
        ckpt.attach(optimizer)
        optimizer.step()
        devices.hold()
        handle = ckpt.save(1, {"net": net})
        assert handle is not None
        assert handle.status().guarded_bytes == 80
        net.weight.data.add_(1)  # no fence, and no version counter that shows it
        with torch.no_grad():
            net.weight.add_(1)
        devices.let_go()
        with pytest.raises(df.TornCaptureError, match=r"net\.weight"):
            handle.wait("durable")


def test_memory_is_held_until_it_is_captured(devices: FakeDevices, tmp_path: Path) -> None:
    """Nothing else may get it: the allocator would give it to the next tensor."""
    with df.Checkpointer(tmp_path / "run") as ckpt:
        devices.hold()
        state = {"x": torch.ones(SIZE, SIZE)}
        storage = weakref.ref(state["x"].untyped_storage())
        handle = ckpt.save(1, state)
        assert handle is not None
        del state
        gc.collect()
        assert storage() is not None
        devices.let_go()
        handle.wait("durable")
    gc.collect()
    assert storage() is None


def test_what_is_not_in_order_is_copied_to_the_host(devices: FakeDevices, tmp_path: Path) -> None:
    value = torch.arange(600.0).reshape(20, 30).T
    with df.Checkpointer(tmp_path / "run") as ckpt:
        ckpt.save(1, {"turned": value}).wait("durable")
        assert devices.calls("cuMemcpyDtoHAsync_v2") == 0
        stored = ckpt.load(1)
    torch.testing.assert_close(stored["turned"], value, rtol=0, atol=0)


def test_a_lazy_conjugate_is_made_on_its_device(devices: FakeDevices, tmp_path: Path) -> None:
    lazy = torch.complex(torch.rand(20, 30), torch.rand(20, 30)).conj()
    with df.Checkpointer(tmp_path / "run") as ckpt:
        ckpt.save(1, {"lazy": lazy}).wait("durable")
        assert devices.calls("cuMemcpyDtoHAsync_v2") == 1
        stored = ckpt.load(1)
    torch.testing.assert_close(stored["lazy"], lazy.resolve_conj(), rtol=0, atol=0)


@pytest.mark.parametrize("behind_dcp", [False, True])
def test_an_interrupted_save_is_not_made_of_memory_that_nobody_holds(
    devices: FakeDevices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind_dcp: bool
) -> None:
    from deepfreeze.dcp import versions

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    state = {"x": torch.ones(SIZE, SIZE)}
    devices.hold()
    devices.let_go_in(300)  # the thread that releases the memory waits for the copies
    if behind_dcp:
        monkeypatch.setattr("deepfreeze.dcp.saving._until", interrupted)
        with pytest.raises(KeyboardInterrupt) as kept:
            versions.commit(tmp_path / "run", state)
    else:
        ckpt = df.Checkpointer(tmp_path / "run")
        monkeypatch.setattr(ckpt._lazy, "open_window", interrupted)
        with pytest.raises(KeyboardInterrupt) as kept:
            ckpt.save(1, state)
    monkeypatch.undo()
    state["x"].zero_()

    def save_again() -> None:
        if behind_dcp:
            versions.commit(tmp_path / "run", state)
            versions.forget(tmp_path)
        else:
            with ckpt:
                ckpt.save(2, state)

    again = threading.Thread(target=save_again, daemon=True)
    again.start()
    again.join(60)
    assert not again.is_alive(), "the interrupted save goes on"
    assert kept.value.__traceback__ is not None
    with df.Checkpointer(tmp_path / "run") as reader:
        (only,) = reader.steps()
        assert torch.equal(reader.load(only)["x"], state["x"])


def test_a_ring_holds_less_than_the_state(devices: FakeDevices, tmp_path: Path) -> None:
    state = {"a": torch.rand(2000, 1500), "b": torch.rand(2000, 1500), "c": torch.rand(SIZE)}
    expected = {name: value.clone() for name, value in state.items()}
    with df.Checkpointer(tmp_path / "run", arena_bytes_max=8 << 20) as ckpt:
        ckpt.save(1, state).wait("durable")
        for value in state.values():
            value.zero_()
        ckpt.restore(state)
    assert_same(state, expected)


def test_each_tensor_is_captured_behind_its_own_update(
    devices: FakeDevices, tmp_path: Path
) -> None:
    net, _ = make_net()
    optimizers = {each: torch.optim.Adam([each], lr=0.1) for each in net.parameters()}

    def step_it(parameter: Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    with df.Checkpointer(tmp_path / "run", every=df.every(steps=2)) as ckpt:
        for each, optimizer in optimizers.items():
            ckpt.attach(optimizer, mode="after_update")
            optimizer.register_step_pre_hook(lambda *_: devices.wait())
            each.register_post_accumulate_grad_hook(step_it)
        state = {"net": net, "optims": list(optimizers.values())}
        saved: dict[int, dict[str, Tensor]] = {}
        for step in range(1, 7):
            devices.wait()
            net(torch.randn(8, SIZE)).square().mean().backward()
            handle = ckpt.step(step, state)
            if handle is not None:
                assert handle.status().early
                saved[step] = copied(net)
                handle.wait("durable")  # the next needs its memory as soon as it begins
        ckpt.wait()
        assert sorted(saved) == [2, 4, 6]
        for step, expected in saved.items():
            devices.wait()
            ckpt.restore(state, step=step)
            assert_same(copied(net), expected)


def test_an_update_is_captured_as_its_stream_leaves_it(
    devices: FakeDevices, tmp_path: Path
) -> None:
    x = nn.Parameter(torch.zeros(SIZE, SIZE))
    optimizer = torch.optim.SGD([x])
    done = 0

    def update_comes(*_: object) -> None:
        devices.fill(x, done)

    optimizer.register_step_post_hook(update_comes)  # before the checkpointer's own
    with df.Checkpointer(tmp_path / "run", every=df.every(steps=1)) as ckpt:
        ckpt.attach(optimizer, mode="after_update")
        for done in range(1, 5):
            x.grad = torch.zeros_like(x)
            optimizer.step()
            handle = ckpt.step(done, {"x": x})
            assert handle is not None
            handle.wait("durable")
            assert handle.status().early == (done > 1)
        for step in range(1, 5):
            ckpt.restore({"x": x}, step=step)
            assert torch.equal(x.detach().view(torch.uint8), torch.full((SIZE, 4 * SIZE), step))


@pytest.mark.parametrize("attached", ["before", "after", "again"])
def test_a_step_that_is_replayed_from_a_graph_has_no_fence(
    devices: FakeDevices, tmp_path: Path, attached: str
) -> None:
    """So its changes are waited for at the end of save()."""
    net, optimizer = make_net()
    update(devices, net, optimizer)
    with df.Checkpointer(tmp_path / "run") as ckpt:
        if attached == "before":
            attach(ckpt, devices, net, optimizer)
        devices.captures_graph = True
        update(devices, net, optimizer)  # here the program captures its graph
        devices.captures_graph = False
        if attached == "again":
            ckpt.attach(optimizer)
            update(devices, net, optimizer)
            ckpt.detach(optimizer)
        if attached != "before":
            ckpt.attach(optimizer)
        devices.hold()
        handle = ckpt.save(1, {"net": net})
        assert handle is not None
        before = copied(net)
        for parameter in net.parameters():
            devices.fill(parameter, 7)  # the graph's work, on the current stream
        time.sleep(0.2)
        devices.let_go()
        handle.wait("durable")
        ckpt.restore({"net": net})
        assert_same(copied(net), before)


def test_activations_that_are_offloaded_are_not_its_business(
    devices: FakeDevices, tmp_path: Path
) -> None:
    net, optimizer = make_net()
    with df.Checkpointer(tmp_path / "run") as ckpt:
        ckpt.attach(optimizer)
        optimizer.register_step_pre_hook(lambda *_: devices.wait())
        for step in (1, 2, 3):
            devices.wait()
            with torch.autograd.graph.save_on_cpu():
                loss = net(torch.randn(8, SIZE)).square().mean()
            handle = ckpt.save(step, {"net": net, "optim": optimizer})
            expected = copied(net)
            loss.backward()
            optimizer.step()
            assert handle is not None
            handle.wait("durable")
        devices.wait()
        ckpt.restore({"net": net, "optim": optimizer})
        assert_same(copied(net), expected)


def test_a_device_that_is_not_there_fails_the_save_and_training_goes_on(
    devices: FakeDevices, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "deepfreeze")
    from deepfreeze.frameworks.torch import device as torch_device
    from deepfreeze.frameworks.torch import tensors as torch_tensors

    torch_device.ordinal_of = torch_tensors.ordinal_of = lambda _: 7
    torch_device.streams_of = lambda _: []
    with df.Checkpointer(tmp_path / "run") as ckpt:
        handle = ckpt.save(1, {"x": torch.ones(3)})
        assert handle is not None
        with pytest.raises(df.CheckpointError, match="CUDA device 7"):
            handle.wait("durable")


def test_without_devices_the_driver_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """If torch has no CUDA, or the program uses none, the engine is not even asked."""
    from deepfreeze import _core
    from deepfreeze.frameworks.torch import device as torch_device

    def asked() -> None:
        raise AssertionError("the driver is looked for")

    monkeypatch.setattr(_core, "check_devices", asked)
    torch_device.reads_devices.cache_clear()
    monkeypatch.setattr(torch.version, "cuda", None)
    assert not torch_device.reads_devices()
    torch_device.reads_devices.cache_clear()
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert not torch_device.is_capturing()
    assert torch_device.ordinal_of(torch.ones(2)) == -1
    assert torch_device.ordinal_of(torch.ones(2, device="meta")) is None
    torch_device.reads_devices.cache_clear()
