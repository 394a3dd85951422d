"""States that a save must not take for those of the save before. A review found these cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

import deepfreeze as df
from deepfreeze.frameworks.torch.recall import are_named_by_torch
from deepfreeze.saving import guards
from deepfreeze.saving.attached import LazyCapture
from deepfreeze.saving.capture import walk
from deepfreeze.state.memo import Memo

WIDE = 256  # its square is worth a guard


def updated(optimizer: torch.optim.Optimizer) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.ones_like(parameter)
    optimizer.step()


def save(ckpt: df.Checkpointer, step: int, state: dict[str, Any]) -> dict[str, int]:
    """Waits for it; the guards of all entries."""
    handle = ckpt.save(step, state)
    assert handle is not None
    handle.wait()
    return {entry.key: entry.guard for entry in ckpt._memo.entries}


@pytest.fixture
def ckpt(tmp_path: Path) -> df.Checkpointer:
    return df.Checkpointer(tmp_path / "run", keep=df.keep(last=1))


def test_guards_of_an_interrupted_save_are_found_anew(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its entries have guards already when it ends, and then a parameter goes back."""
    net = nn.Sequential(nn.Linear(WIDE, WIDE, bias=False), nn.Linear(WIDE, WIDE, bias=False))
    moving, staying = net[0].weight, net[1].weight
    one = torch.optim.SGD([{"params": [moving]}, {"params": []}])
    other = torch.optim.SGD([staying])
    ckpt.attach(one)
    ckpt.attach(other)
    state: dict[str, Any] = {"net": net}
    for step in range(3):
        found = save(ckpt, step, state)
    assert found == {"net.0.weight": 1, "net.1.weight": 2}
    one.param_groups[0]["params"].pop()
    other.param_groups[0]["params"].append(moving)

    def interrupted(_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(guards, "_watch_of", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ckpt.save(3, state)
    other.param_groups[0]["params"].pop()
    one.param_groups[0]["params"].append(moving)
    assert save(ckpt, 4, state) == found
    ckpt.close()


def test_memory_that_moved_in_an_interrupted_save_is_no_torn_one(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = nn.Linear(WIDE, WIDE)
    optimizer = torch.optim.SGD(net.parameters())
    ckpt.attach(optimizer)
    state: dict[str, Any] = {"net": net}
    for step in range(3):
        save(ckpt, step, state)
    net.weight.data = net.weight.data.clone()

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LazyCapture, "watch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ckpt.save(3, state)
    for step in range(4, 7):
        handle = ckpt.save(step, state)
        assert handle is not None
        updated(optimizer)  # behind its fence
        handle.wait()
    ckpt.close()


class Dropping(type):
    """Asking it for its hash may change the modules."""

    drop_from: ClassVar[nn.Module | None] = None

    def __hash__(cls) -> int:
        if Dropping.drop_from is not None:
            Dropping.drop_from._modules.clear()
        return 7


class Holder(nn.Module, metaclass=Dropping):
    def __init__(self) -> None:
        super().__init__()
        self.child = nn.Linear(3, 3)
        self.weight = nn.Parameter(torch.ones(3))


def test_a_class_that_runs_code_while_modules_are_compared(ckpt: df.Checkpointer) -> None:
    net = nn.Sequential(nn.ReLU(), Holder(), nn.Linear(3, 3))
    state: dict[str, Any] = {"net": net}
    for step in range(3):
        save(ckpt, step, state)
    try:
        Dropping.drop_from = net[1]
        for step in range(3, 6):
            save(ckpt, step, state)
    finally:
        Dropping.drop_from = None
    assert "net.1.child.weight" not in {entry.key for entry in ckpt._memo.entries}
    ckpt.close()


class Showing(nn.Module):
    """Its class has a property that gives its buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.__dict__["_buffers"] = {}
        self.__dict__["kept"] = {f"x{number}": torch.ones(2) for number in range(40)}
        self.weight = nn.Parameter(torch.ones(3))

    @property
    def _buffers(self) -> dict[str, torch.Tensor]:  # type: ignore[override]
        return self.__dict__.get("kept", {})

    @_buffers.setter
    def _buffers(self, _: dict[str, torch.Tensor]) -> None:
        """Of torch's own __init__()."""


def test_buffers_that_a_class_shows_are_walked(ckpt: df.Checkpointer) -> None:
    net = Showing()
    for step in range(4):
        save(ckpt, step, {"net": net})
        assert len(ckpt._memo.entries) == 41
    ckpt.close()


@pytest.mark.parametrize("of_class", [False, True])
def test_the_version_of_a_module_is_stored_as_it_is(
    monkeypatch: pytest.MonkeyPatch, of_class: bool
) -> None:
    net, memo = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), Memo()
    for _ in range(3):
        walk({"net": net}, memo)
    monkeypatch.setattr(nn.Linear if of_class else net[0], "_version", 7)
    for _ in range(2):
        text = walk({"net": net}, memo).text
        assert text == walk({"net": net}).text
        assert '["0",7]' in text


def test_memory_that_is_elsewhere_at_an_update_is_no_torn_one(tmp_path: Path) -> None:
    """As a parameter is that is gathered for a step."""
    net = nn.Linear(WIDE, WIDE, bias=False)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    with df.Checkpointer(tmp_path / "run") as ckpt:
        ckpt.attach(optimizer, mode="after_update")
        updated(optimizer)
        for step in range(1, 5):
            handle = ckpt.step(step, {"net": net, "optimizer": optimizer})
            assert handle is not None
            handle.wait()
            torch.testing.assert_close(
                ckpt.load(step)["net"]["weight"], net.weight.detach(), rtol=0, atol=0
            )
            own = net.weight.data
            net.weight.data = own.clone()
            updated(optimizer)
            own.copy_(net.weight.data)
            net.weight.data = own


def test_an_inference_tensor_in_guarded_memory_is_copied_at_once(ckpt: df.Checkpointer) -> None:
    memory = torch.zeros(WIDE, WIDE).numpy()
    net = nn.Linear(WIDE, WIDE, bias=False)
    net.weight = nn.Parameter(torch.from_numpy(memory))
    with torch.inference_mode():
        alias = torch.from_numpy(memory)
    ckpt.attach(torch.optim.SGD(net.parameters()))
    for step in range(4):
        found = save(ckpt, step, {"net": net, "alias": alias})
    assert found == {"net.weight": 0}
    ckpt.close()


class Counted(nn.Linear):
    """Its version is another one each time."""

    asked = 0

    @property
    def _version(self) -> int:  # type: ignore[override]
        return self.asked


def test_a_version_that_a_property_gives_is_asked_for() -> None:
    net, memo = nn.Sequential(Counted(4, 4)), Memo()
    for number in range(2, 6):
        Counted.asked = number
        assert walk({"net": net}, memo).text == walk({"net": net}).text


def test_parameters_that_a_class_shows_are_named_anew() -> None:
    class Shows(nn.Module):
        _parameters = property(lambda _: {})  # type: ignore[assignment]

    assert are_named_by_torch({nn.Linear, nn.Sequential})
    assert not are_named_by_torch({nn.Linear, Shows})
