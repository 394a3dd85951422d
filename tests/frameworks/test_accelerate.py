"""Features special to Accelerate: accumulation, registered objects, several ranks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("accelerate")

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader, TensorDataset

import deepfreeze as df
from deepfreeze.accelerate import AcceleratorCheckpointer

from .trainer_examples import example_of, run_python


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """Accelerators of one process share their state of an accumulation."""
    yield
    GradientState._reset_state()


def test_the_example(tmp_path: Path) -> None:
    example = example_of("accelerate")
    run_python(example, tmp_path, trainer="accelerate")
    with df.Checkpointer(tmp_path / "runs" / "accelerate") as ckpt:
        assert ckpt.steps() == [7, 8]
    told = run_python(
        example + "\nprint('from', ckpt.last_restore.step)\n", tmp_path, trainer="accelerate"
    )
    assert "from 8" in told


class Counter:
    """An object of the program's, as register_for_checkpointing() takes them."""

    def __init__(self) -> None:
        self.count = 0

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


def prepared(accelerator: Accelerator) -> tuple[Any, Any, Counter]:
    net = torch.nn.Linear(256, 256)
    optimizer = torch.optim.AdamW(net.parameters())
    counter = Counter()
    accelerator.register_for_checkpointing(counter)
    net, optimizer = accelerator.prepare(net, optimizer)
    return net, optimizer, counter


def test_an_accumulation_is_not_saved_in_its_middle(tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    net, optimizer, counter = prepared(accelerator)
    with AcceleratorCheckpointer(accelerator, tmp_path, profile="latency") as ckpt:
        for batch in range(1, 6):
            counter.count = batch
            with accelerator.accumulate(net):
                accelerator.backward(net(torch.randn(4, 256)).sum())
                optimizer.step()
                optimizer.zero_grad()
            handle = ckpt.step(batch, {"mine": torch.full((3,), batch)})
            assert (handle is None) == (batch % 2 == 1)
            if handle is not None:
                assert handle.status().guarded_bytes > 0
        assert accelerator.step == 5
        mine = {"mine": torch.zeros(3, dtype=torch.int64)}
        assert ckpt.restore(mine) == 4
        assert (mine["mine"].tolist(), counter.count, accelerator.step) == ([4, 4, 4], 4, 4)


def test_names_are_those_of_the_order(tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True)
    net, optimizer, _ = prepared(accelerator)
    with AcceleratorCheckpointer(accelerator, tmp_path) as ckpt:
        net(torch.randn(4, 256)).sum().backward()
        optimizer.step()
        ckpt.save(1)
        ckpt.wait()
        loaded = ckpt.load(1)
    assert torch.equal(loaded["models"][0]["weight"], net.weight)
    assert "exp_avg" in loaded["optimizers"][0]["state"]["weight"]


def test_the_best_can_be_restored(tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True)
    _, _, counter = prepared(accelerator)
    with AcceleratorCheckpointer(accelerator, tmp_path) as ckpt:
        for step, loss in ((1, 3.0), (2, 1.0), (3, 2.0)):
            counter.count = step
            ckpt.step(step, metrics={"loss": loss})
        ckpt.wait()
        assert ckpt.best("loss") == 2
        assert ckpt.restore(step="best:loss") == 2
        assert counter.count == 2


def test_a_step_that_is_due_in_an_accumulation_is_made_up_for(tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    net, optimizer, _ = prepared(accelerator)

    def train(ckpt: AcceleratorCheckpointer, steps: range) -> None:
        for batch in steps:
            with accelerator.accumulate(net):
                accelerator.backward(net(torch.randn(4, 256)).sum())
                optimizer.step()
                optimizer.zero_grad()
            ckpt.step(batch)

    with AcceleratorCheckpointer(accelerator, tmp_path, every=df.every(steps=10)) as ckpt:
        train(ckpt, range(24))
    with AcceleratorCheckpointer(accelerator, tmp_path, every=df.every(steps=10)) as ckpt:
        assert ckpt.restore() == 23
        train(ckpt, range(24, 36))
        ckpt.wait()
        assert ckpt.steps() == [11, 23, 31]


@pytest.mark.parametrize("stateful", [True, False])
@pytest.mark.parametrize("late", [True, False])
def test_a_save_at_an_epochs_end_goes_on_with_the_next_order(
    tmp_path: Path, stateful: bool, late: bool
) -> None:
    """In a loop that leaves it to the loader to count epochs, at its last batch or behind it."""

    def seen(resume: bool, until: int) -> list[int]:
        GradientState._reset_state()
        AcceleratorState._reset_state(True)
        order = DataLoaderConfiguration(
            use_stateful_dataloader=stateful, use_seedable_sampler=True, data_seed=5
        )
        accelerator = Accelerator(cpu=True, dataloader_config=order)
        data = TensorDataset(torch.arange(8))
        loader = DataLoader(data, batch_size=2, shuffle=True, generator=torch.Generator())
        loader = accelerator.prepare(loader)
        rows: list[int] = []
        with AcceleratorCheckpointer(accelerator, tmp_path) as ckpt:
            done = ckpt.restore() if resume else 0
            while done < until:
                for (batch,) in loader:
                    rows += batch.tolist()
                    done += 1
                    if not late:
                        ckpt.step(done)
                if late:
                    ckpt.step(done)
        return rows

    before, after = seen(False, 4), seen(True, 8)
    assert before + after == seen(False, 8)


RANKS = """
import sys
from pathlib import Path
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader
from deepfreeze.accelerate import AcceleratorCheckpointer
from examples.digest import sha256
from tests.frameworks.trainer_parts import Parts, Rows, loss_of
from tests.frameworks.training import Options

run, until, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
parts = Parts(Options(seed=3))
order = DataLoaderConfiguration(use_seedable_sampler=True, data_seed=5)
accelerator = Accelerator(cpu=True, dataloader_config=order)
loader = DataLoader(Rows(), 8, shuffle=True, generator=torch.Generator())
net, optim, loader = accelerator.prepare(parts.net, parts.optim, loader)
torch.manual_seed(seed + accelerator.process_index)
ckpt = AcceleratorCheckpointer(
    accelerator, run, models=[net], profile="latency"
) if run else None
done = ckpt.restore() or 0 if ckpt else 0
while done < until:
    epoch, batch = divmod(done, len(loader))
    rest = accelerator.skip_first_batches(loader, batch) if batch else loader
    rest.set_epoch(epoch)
    for rows in rest:
        accelerator.backward(loss_of(net, rows))
        optim.step()
        optim.zero_grad()
        done += 1
        if ckpt:
            ckpt.step(done)
        if done == until:
            break
if ckpt:
    ckpt.close()
Path(f"rank-{accelerator.process_index}").write_text(sha256(net.state_dict(), optim.state_dict()))
"""


def test_two_ranks_resume_bit_for_bit(tmp_path: Path) -> None:
    def job(run: str, until: int, seed: int) -> list[str]:
        run_python(RANKS, tmp_path, run, str(until), str(seed), trainer="accelerate", ranks=2)
        return [(tmp_path / f"rank-{rank}").read_text() for rank in range(2)]

    undisturbed = job("", 8, 3)
    job(str(tmp_path / "run"), 3, 3)
    assert job(str(tmp_path / "run"), 8, 77) == undisturbed
