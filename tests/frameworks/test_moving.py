"""The diffs of docs/guides/moving.md: the lines before (-) and those after (+) are programs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning", reason="of build/frameworks-venv")

from .trainer_examples import ROOT

SIGNS = pytest.mark.parametrize("sign", ["-", "+"])
PAGE = ROOT / "docs" / "guides" / "moving.md"


def loop(heading: str, sign: str) -> Callable[[dict[str, object]], None]:
    """The lines with that sign, as a program that is given its names."""
    part = PAGE.read_text().partition(f"\n## From {heading}\n")[2]
    (diff,) = re.findall(r"^```diff\n(.*?)^```$", part.partition("\n## ")[0], re.M | re.S)
    lines = diff.splitlines()
    text = "\n".join(line[1:] for line in lines if line[:1] in (sign, " ", ""))
    code = compile(text, "loop.py", "exec")
    return lambda names: exec(code, names)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@SIGNS
def test_orbax(sign: str) -> None:
    from jax import numpy as jnp

    run = loop("Orbax", sign)
    for start, total in ((0, 20), (20, 30)):
        names: dict[str, Any] = {
            "state": {"w": jnp.zeros(3)},
            "train_step": lambda state: {"w": state["w"] + 1},
            "total": total,
        }
        run(names)
        assert names["start"] == start
        assert names["state"]["w"].tolist() == [total] * 3


@SIGNS
def test_lightning(sign: str) -> None:
    import torch
    from lightning.pytorch import LightningModule, Trainer

    class Counts(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(2, 1)
            self.batches = 0

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.batches += 1
            return self.net(batch).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    run = loop("Lightning", sign)
    loader = torch.utils.data.DataLoader(torch.ones(8, 2))
    for epochs in (1, 2):
        module = Counts()
        options = {"max_epochs": epochs, "accelerator": "cpu", "logger": False,
                   "enable_progress_bar": False, "enable_model_summary": False}  # fmt: skip
        run({"Trainer": Trainer, "module": module, "loader": loader, "options": options})
        assert module.batches == 8


@SIGNS
def test_the_trainer_of_hugging_face(sign: str) -> None:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    run = loop("the Trainer of Hugging Face", sign)
    config = GPT2Config(vocab_size=8, n_positions=4, n_embd=8, n_layer=1, n_head=1)
    rows = torch.randint(8, (16, 4), generator=torch.Generator().manual_seed(1))
    data = [{"input_ids": row, "labels": row} for row in rows]
    for steps, batches in ((4, 4), (6, 2)):
        arguments = TrainingArguments(
            output_dir="out", max_steps=steps, per_device_train_batch_size=2, save_steps=2,
            use_cpu=True, report_to=[], disable_tqdm=True,
        )  # fmt: skip
        model, seen = GPT2LMHeadModel(config), []
        model.register_forward_hook(lambda *_, seen=seen: seen.append(1))
        run({"Trainer": Trainer, "model": model, "arguments": arguments, "data": data})
        assert len(seen) == batches
