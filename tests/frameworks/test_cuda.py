"""The torch adapter with a real CUDA device: nothing here is a double.

test_devices.py has the same rules on the fake driver, which makes each error visible; this asks
whether the driver keeps them as its documentation says.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import deepfreeze as df

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="LEFT OUT: torch finds no CUDA device here"
)
WIDE = 4096  # 64 MiB a tensor: a copy takes a millisecond
TIMES = 100  # changes in a row, each longer than a copy's beginning
MIB = 1 << 20


def added(values: list[Tensor], times: int = TIMES) -> None:
    """Enqueued at once; each is one number throughout before and after."""
    for _ in range(times):
        torch._foreach_add_(values, 1.0)


class Add(torch.optim.Optimizer):
    """Adds one to every element, TIMES a step, and waits for nothing."""

    def __init__(self, values: list[nn.Parameter]) -> None:
        super().__init__(values, {})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        added(self.param_groups[0]["params"])


def parameters(count: int = 4) -> list[nn.Parameter]:
    return [nn.Parameter(torch.zeros(WIDE, WIDE, device="cuda")) for _ in range(count)]


def assert_stored(ckpt: df.Checkpointer, step: int, expected: list[Tensor]) -> None:
    stored = ckpt.load(step)["x"]
    for one, other in zip(stored, expected, strict=True):
        torch.testing.assert_close(one, other.cpu(), rtol=0, atol=0)


@torch.no_grad()
def clones(values: list[nn.Parameter]) -> list[Tensor]:
    return [value.clone() for value in values]


@pytest.mark.parametrize("attached", [False, True])
@pytest.mark.parametrize("arena", [None, 96 * MIB])
@pytest.mark.parametrize("side_stream", [False, True])
def test_a_save_between_two_steps_is_of_the_first(
    tmp_path: Path, attached: bool, arena: int | None, side_stream: bool
) -> None:
    """Only the checkpointer waits for the device; with a ring, too."""
    values = parameters()
    optimizer = Add(values)
    stream = torch.cuda.Stream() if side_stream else torch.cuda.default_stream()
    stream.wait_stream(torch.cuda.current_stream())
    with df.Checkpointer(tmp_path, arena_bytes_max=arena) as ckpt, torch.cuda.stream(stream):
        if attached:
            ckpt.attach(optimizer)
        optimizer.step()
        for step in range(1, 6):
            handle = ckpt.save(step, {"x": values})
            expected = clones(values)
            optimizer.step()
            assert handle is not None
            handle.wait("durable")
            assert_stored(ckpt, step, expected)
            optimizer.step()


def test_each_tensor_is_captured_behind_its_own_update(tmp_path: Path) -> None:
    values = parameters(3)
    optimizers = [Add([value]) for value in values]
    with df.Checkpointer(tmp_path, every=df.every(steps=1)) as ckpt:
        for optimizer in optimizers:
            ckpt.attach(optimizer, mode="after_update")
        for step in range(1, 6):
            for optimizer in optimizers:
                optimizer.step()
            handle = ckpt.step(step, {"x": values})
            expected = clones(values)
            assert handle is not None
            handle.wait("durable")
            assert handle.status().early == (step > 1)
            assert_stored(ckpt, step, expected)


def of_all_kinds() -> dict[str, Tensor]:
    bits = torch.randint(256, (1 << 20,), dtype=torch.uint8, device="cuda")
    kinds = ["bfloat16", "float16", "float32", "float64", "int8", "int16", "int32", "int64"]
    found = {kind: bits.view(getattr(torch, kind)).clone() for kind in [*kinds, "float8_e4m3fn"]}
    base = torch.randn(500, 700, device="cuda")
    return {
        **found,
        "bool": bits > 100,
        "complex": torch.randn(300, dtype=torch.complex64, device="cuda"),
        "conjugate": torch.randn(300, dtype=torch.complex64, device="cuda").conj(),
        "turned": base.T,
        "part": base[100:200],
        "column": base[:, 3],
        "repeated": torch.randn(1, 5, device="cuda").expand(100, 5),
        "empty": torch.empty(0, 3, device="cuda"),
        "scalar": torch.tensor(0.5, device="cuda"),
        "host": torch.randn(1000),
        "pinned": torch.randn(1000).pin_memory(),
    }


def same_bits(one: Tensor, other: Tensor) -> bool:
    first, second = (each.resolve_conj().cpu().contiguous().reshape(-1) for each in (one, other))
    return torch.equal(first.view(torch.uint8), second.view(torch.uint8))


def test_all_kinds_come_back_where_they_were(tmp_path: Path) -> None:
    state = of_all_kinds()
    expected = {name: value.clone() for name, value in state.items()}
    with df.Checkpointer(tmp_path) as ckpt:
        ckpt.save(1, state).wait("durable")
        stored = ckpt.load(1)
        into = {name: torch.zeros_like(value) for name, value in expected.items()}
        places = {name: (value.device, value.data_ptr()) for name, value in into.items()}
        assert ckpt.restore(into) == 1
    for name, value in expected.items():
        assert same_bits(stored[name], value), name
        assert same_bits(into[name], value), name
        assert (into[name].device, into[name].data_ptr()) == places[name]


def test_memory_that_is_let_go_is_nobody_elses_before_it_is_copied(tmp_path: Path) -> None:
    with df.Checkpointer(tmp_path) as ckpt:
        for step in range(1, 6):
            state: dict[str, Any] = {"x": parameters(2)}
            with torch.no_grad():
                added(state["x"], step)
            handle = ckpt.save(step, state)
            del state
            gc.collect()
            taken = [torch.full((WIDE, WIDE), -1.0, device="cuda") for _ in range(4)]
            assert handle is not None
            handle.wait("durable")
            for stored in ckpt.load(step)["x"]:
                assert bool((stored == float(step)).all())
            del taken


def test_a_step_that_is_replayed_from_a_graph(tmp_path: Path) -> None:
    """Saves between replays are right; a save during a capture fails and leaves that alone."""
    net = nn.Sequential(nn.Linear(1024, 1024), nn.BatchNorm1d(1024), nn.Linear(1024, 1024)).cuda()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, capturable=True)
    batch = torch.randn(256, 1024, device="cuda")

    def update() -> None:
        optimizer.zero_grad(set_to_none=True)
        net(batch).square().mean().backward()
        optimizer.step()

    with df.Checkpointer(tmp_path) as ckpt:
        ckpt.attach(optimizer)
        state = {"net": net, "optim": optimizer}
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                update()
        torch.cuda.current_stream().wait_stream(stream)
        ckpt.save(1, state).wait("durable")
        graph = torch.cuda.CUDAGraph()
        in_flight = ckpt.save(2, state)  # goes on while the graph is captured
        with torch.cuda.graph(graph):
            update()
            refused = ckpt.save(3, state)
        assert in_flight is not None
        in_flight.wait("durable")
        assert refused is not None
        with pytest.raises(df.CheckpointError, match="captured"):
            refused.wait("durable")
        for step in range(4, 24):
            graph.replay()
            handle = ckpt.save(step, state)
            expected = {name: value.clone() for name, value in net.state_dict().items()}
            for _ in range(5):
                graph.replay()
            assert handle is not None
            handle.wait("durable")
            stored = ckpt.load(step)["net"]
            for name, value in expected.items():
                assert same_bits(stored[name], value), name


@pytest.mark.parametrize("kind", ["foreach", "fused", "compiled"])
def test_optimizers_of_torch_resume(tmp_path: Path, kind: str) -> None:
    """Weights and moments come back, and the next steps end the same, bit for bit."""

    def make() -> tuple[nn.Module, torch.optim.Optimizer, Callable[[], None]]:
        torch.manual_seed(3)
        net = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)).cuda()
        chosen = {} if kind == "compiled" else {kind: True}
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, **chosen)
        step = torch.compile(optimizer.step) if kind == "compiled" else optimizer.step

        def update() -> None:
            optimizer.zero_grad()
            net(torch.ones(64, 512, device="cuda")).square().mean().backward()
            step()

        return net, optimizer, update

    net, optimizer, update = make()
    with df.Checkpointer(tmp_path) as ckpt:
        ckpt.attach(optimizer)
        for _ in range(3):
            update()
        ckpt.save(3, {"net": net, "optim": optimizer})
        for _ in range(3):
            update()
        ckpt.wait()
        other, other_optimizer, other_update = make()
        assert ckpt.restore({"net": other, "optim": other_optimizer}) == 3
        for _ in range(3):
            other_update()
    for one, same in zip(net.state_dict().values(), other.state_dict().values(), strict=True):
        assert same_bits(one, same)


def test_a_torn_step_is_found(tmp_path: Path) -> None:
    """A change without a fence and without stream order is seen by its version counter."""
    net = nn.Linear(WIDE, WIDE, device="cuda")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    other = torch.cuda.Stream()
    with df.Checkpointer(tmp_path) as ckpt:
        ckpt.attach(optimizer)
        optimizer.step()
        with torch.no_grad():
            added([net.weight], 1000)
        handle = ckpt.save(1, {"net": net})
        with torch.cuda.stream(other), torch.no_grad():
            net.weight.add_(1)
        assert handle is not None
        with pytest.raises(df.TornCaptureError, match=r"net\.weight"):
            handle.wait("durable")


def test_all_is_given_back(tmp_path: Path) -> None:
    """Device memory and pinned memory are freed: else the second hundred would not fit."""
    state = {"x": torch.ones(64 * MIB, device="cuda")}

    def once(step: int) -> int:
        with df.Checkpointer(tmp_path / str(step)) as ckpt:
            ckpt.save(step, state).wait("durable")
            ckpt.restore(state)
        torch.cuda.synchronize()
        free, _ = torch.cuda.mem_get_info()
        return free

    once(0)
    before = once(1)
    assert min(once(step) for step in range(2, 8)) >= before - 8 * MIB
