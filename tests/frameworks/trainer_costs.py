"""The cost of a save in a trainer: `python -m tests.frameworks.trainer_costs lightning`.

How long the training's thread is in one, fences included, with the trainer's own saves and with
ours in turn: medians and ranges. A state of 50 MB, saved at each 3rd of 18 steps; the first save of
a training is not counted.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import deepfreeze as df

STEPS, EVERY, ROUNDS = 18, 3, 3
WIDTH, BATCH = 1024, 64


class Rows(Dataset[dict[str, Tensor]]):
    def __len__(self) -> int:
        return STEPS * BATCH

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"x": torch.full((WIDTH,), index / len(self))}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        layers = [nn.Linear(WIDTH, WIDTH) for _ in range(4)]
        self.net = nn.Sequential(*[each for layer in layers for each in (layer, nn.ReLU())])

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"loss": self.net(x).square().mean()}


def lightning(how: str, place: Path) -> Callable[[], object]:
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint

    from deepfreeze.lightning import DeepFreezeCallback

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch: Any, _: int) -> Any:
            return self.net(batch["x"])["loss"]

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters())

    savers = {
        "own": [ModelCheckpoint(place, every_n_train_steps=EVERY, save_top_k=-1)],
        "deepfreeze": [DeepFreezeCallback(place, every=df.every(steps=EVERY))],
    }
    trainer = Trainer(
        accelerator="cpu", max_steps=STEPS, callbacks=savers[how], logger=False,
        enable_checkpointing=how == "own", enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    loader = torch.utils.data.DataLoader(Rows(), BATCH)
    return lambda: trainer.fit(Module(), loader)


def huggingface(how: str, place: Path) -> Callable[[], object]:
    from transformers import Trainer, TrainingArguments

    from deepfreeze.huggingface import DeepFreezeTrainerMixin

    class Frozen(DeepFreezeTrainerMixin, Trainer):
        pass

    arguments = TrainingArguments(
        output_dir=str(place), max_steps=STEPS, per_device_train_batch_size=BATCH, use_cpu=True,
        save_strategy="steps", save_steps=EVERY, report_to=[],
        logging_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    kind = Frozen if how == "deepfreeze" else Trainer
    return kind(model=Net(), args=arguments, train_dataset=Rows()).train


def accelerate(how: str, place: Path) -> Callable[[], object]:
    from accelerate import Accelerator

    from deepfreeze.accelerate import AcceleratorCheckpointer

    accelerator = Accelerator(cpu=True)
    net = Net()
    loader = torch.utils.data.DataLoader(Rows(), BATCH)
    net, optim, loader = accelerator.prepare(net, torch.optim.AdamW(net.parameters()), loader)
    ours = how == "deepfreeze"
    ckpt = (
        AcceleratorCheckpointer(accelerator, place, every=df.every(steps=EVERY)) if ours else None
    )

    def train() -> None:
        for step, batch in enumerate(loader, 1):
            accelerator.backward(net(**batch)["loss"])
            optim.step()
            optim.zero_grad()
            if ckpt is not None:
                ckpt.step(step)
            elif step % EVERY == 0:
                accelerator.save_state(str(place / str(step)))
        if ckpt is not None:
            ckpt.close()

    return train


TRAINERS = {each.__name__: each for each in (lightning, huggingface, accelerate)}


def own_save(trainer: str) -> tuple[Any, str]:
    """The name of a trainer's own save."""
    if trainer == "lightning":
        from lightning.pytorch import Trainer

        return Trainer, "save_checkpoint"
    if trainer == "huggingface":
        from transformers import Trainer

        return Trainer, "_save_checkpoint"
    from accelerate import Accelerator

    return Accelerator, "save_state"


def milliseconds(trainer: str, how: str) -> list[float]:
    """That the training's thread is in each save, and in the fences for it."""
    owner, name = (df.Checkpointer, "_checked_save") if how == "deepfreeze" else own_save(trainer)
    call, found, handles = getattr(owner, name), [], []

    def timed(*arguments: Any, **options: Any) -> Any:
        began = time.perf_counter()
        result = call(*arguments, **options)
        found.append(time.perf_counter() - began)
        handles.append(result)
        return result

    with (
        mock.patch.object(owner, name, timed),
        tempfile.TemporaryDirectory(prefix="df-costs-") as place,
    ):
        TRAINERS[trainer](how, Path(place, "run"))()
    if how == "deepfreeze":
        found = [a + b.status().fence_seconds for a, b in zip(found, handles, strict=True)]
    return [1000 * each for each in found[1:]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trainer", choices=TRAINERS)
    trainer = parser.parse_args().trainer
    found: dict[str, list[float]] = {"own": [], "deepfreeze": []}
    for how in ROUNDS * list(found):
        found[how] += milliseconds(trainer, how)
    for how, each in found.items():
        low, middle, high = min(each), statistics.median(each), max(each)
        print(f"{how}: {middle:.1f} ms ({low:.1f} to {high:.1f})", flush=True)


if __name__ == "__main__":
    main()
