"""What saves cost in a trainer: `python -m tests.frameworks.trainer_costs lightning`.

The same training without saves, with those of the trainer itself and with ours, in turn; run times
are given as ratios to the first, median and range. A state of 50 MB, saved at each 4th of 24 steps.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import deepfreeze as df

STEPS, EVERY, ROUNDS = 24, 4, 7
WIDTH, BATCH = 1024, 256


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
        "none": [],
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
        save_strategy="no" if how == "none" else "steps", save_steps=EVERY, report_to=[],
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
            elif how == "own" and step % EVERY == 0:
                accelerator.save_state(str(place / str(step)))
        if ckpt is not None:
            ckpt.close()

    return train


TRAINERS = {each.__name__: each for each in (lightning, huggingface, accelerate)}


def seconds(make: Callable[[str, Path], Callable[[], object]], how: str) -> float:
    with tempfile.TemporaryDirectory(prefix="df-costs-") as place:
        train = make(how, Path(place, "run"))
        began = time.perf_counter()
        train()
        return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trainer", choices=TRAINERS)
    make = TRAINERS[parser.parse_args().trainer]
    ratios: dict[str, list[float]] = {"own": [], "deepfreeze": []}
    seconds(make, "none")  # what is slow the first time
    for _ in range(ROUNDS):
        alone = seconds(make, "none")
        for how, found in ratios.items():
            found.append(seconds(make, how) / alone)
    for how, found in ratios.items():
        low, middle, high = min(found), statistics.median(found), max(found)
        print(f"{how}: {middle:.2f} ({low:.2f} to {high:.2f})", flush=True)


if __name__ == "__main__":
    main()
