"""Features special to Hugging Face's Trainer: its policies, the best model, several ranks."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
)

import deepfreeze as df
from deepfreeze.base import program
from deepfreeze.huggingface import DeepFreezeTrainerMixin

from .trainer_examples import example_of, run_python

ROWS = 24
BATCH = 4
OWN = ("callbacks", "optimizers", "run_options", "data_collator")  # of a Trainer


class FrozenTrainer(DeepFreezeTrainerMixin, Trainer):
    """As its users write it."""


def tokens() -> list[dict[str, torch.Tensor]]:
    rows = torch.randint(64, (ROWS, 16), generator=torch.Generator().manual_seed(1))
    return [{"input_ids": row, "labels": row} for row in rows]


def trainer_in(
    place: Path, steps: int, kind: Any = FrozenTrainer, seed: int = 3, **options: Any
) -> Any:
    """A new model and a new Trainer; options are its arguments."""
    torch.manual_seed(seed)
    config = GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2)
    more = {key: options.pop(key) for key in OWN if key in options}
    arguments = {
        "output_dir": str(place), "max_steps": steps, "per_device_train_batch_size": BATCH,
        "save_strategy": "steps", "save_steps": 1, "use_cpu": True, "report_to": [],
        "logging_steps": 1, "disable_tqdm": True, "seed": seed, "data_seed": 5,
    }  # fmt: skip
    arguments |= {"lr_scheduler_type": "constant", **options}  # else it follows from max_steps
    data = tokens()
    return kind(
        model=GPT2LMHeadModel(config), args=TrainingArguments(**arguments), train_dataset=data,
        eval_dataset=data[:BATCH], **more,
    )  # fmt: skip


def trained(place: Path, steps: int, resume: Any = None, **options: Any) -> Any:
    trainer = trainer_in(place, steps, **options)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def steps_in(place: Path) -> list[int]:
    with df.Checkpointer(place / "deepfreeze") as ckpt:
        return ckpt.steps()


def assert_same(one: Any, other: Any) -> None:
    for name, tensor in one.model.state_dict().items():
        assert torch.equal(tensor, other.model.state_dict()[name]), name


def test_the_example(tmp_path: Path) -> None:
    example = example_of("huggingface")
    run_python(example, tmp_path, trainer="huggingface")
    assert steps_in(tmp_path / "runs" / "gpt2") == [8, 10]
    told = run_python(
        example + "\nprint('from', trainer.checkpointer.last_restore.step)",
        tmp_path,
        trainer="huggingface",
    )
    assert "from 10" in told


@pytest.mark.parametrize("accumulated", [1, 2])
def test_a_resume_ends_as_what_never_stopped(tmp_path: Path, accumulated: int) -> None:
    options = {"gradient_accumulation_steps": accumulated}
    undisturbed = trained(tmp_path / "whole", 8, kind=Trainer, **options)
    trained(tmp_path / "run", 5, **options)
    resumed = trained(tmp_path / "run", 8, resume=True, seed=77, **options)
    assert_same(resumed, undisturbed)
    assert resumed.state.global_step == 8
    losses = [entry["loss"] for entry in resumed.state.log_history if "loss" in entry]
    assert losses == [entry["loss"] for entry in undisturbed.state.log_history if "loss" in entry]


@pytest.mark.parametrize("options", [[], ["--shard-bytes", "20000"]])
def test_an_exported_model_is_what_from_pretrained_reads(
    tmp_path: Path, options: list[str]
) -> None:
    trainer = trained(tmp_path, 2)
    trainer.model.config.save_pretrained(tmp_path / "config")
    model = tmp_path / "model"
    command = [program.find(), "export", f"{tmp_path}/deepfreeze@2", model, "--transformers"]
    command += ["--config", tmp_path / "config", *options]
    subprocess.run(list(map(str, command)), check=True, timeout=60)
    assert (len([*model.glob("*.safetensors")]) > 2) == bool(options)
    read, told = AutoModelForCausalLM.from_pretrained(model, output_loading_info=True)
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    for name, tensor in trainer.model.state_dict().items():
        assert torch.equal(tensor, read.state_dict()[name]), name


def test_a_step_of_the_run(tmp_path: Path) -> None:
    trained(tmp_path, 4)
    trainer = trained(tmp_path, 6, resume=2)
    assert trainer.checkpointer.last_restore.step == 2
    assert steps_in(tmp_path) == [1, 2, 3, 4, 5, 6]


def test_true_begins_where_nothing_is(tmp_path: Path) -> None:
    assert trained(tmp_path, 2, resume=True).state.global_step == 2


def test_damage_makes_it_fall_back(tmp_path: Path) -> None:
    trained(tmp_path, 4)
    newest = max((tmp_path / "deepfreeze").glob("step-*"))
    (file,) = newest.glob("*.safetensors")
    data = bytearray(file.read_bytes())
    data[random.Random(1).randrange(len(data) // 2, len(data))] ^= 1
    file.write_bytes(data)
    with pytest.raises(df.CorruptError):
        trained(tmp_path, 5, resume=4)
    trainer = trained(tmp_path, 5, resume=True)
    assert trainer.checkpointer.last_restore.step == 3
    assert trainer.state.global_step == 5


def test_the_trainers_own_checkpoint_is_read(tmp_path: Path) -> None:
    undisturbed = trained(tmp_path / "own", 4, kind=Trainer)
    resumed = trained(tmp_path / "run", 4, resume=str(tmp_path / "own" / "checkpoint-2"), seed=3)
    assert_same(resumed, undisturbed)
    assert steps_in(tmp_path / "run") == [3, 4]


def scored(place: Path, scores: list[float], resume: Any = None, **options: Any) -> Any:
    """Trained for a step per score; without options each is evaluated and saved."""
    trainer = trainer_in(
        place, len(scores), **{
            "eval_strategy": "steps", "eval_steps": 1, "metric_for_best_model": "score",
            "greater_is_better": True, "load_best_model_at_end": True, **options,
        },
    )  # fmt: skip
    trainer.compute_metrics = lambda _: {"score": scores[trainer.state.global_step - 1]}
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def assert_holds(trainer: Any, place: Path, step: int) -> None:
    """Its model is the one of that step."""
    with df.Checkpointer(place / "deepfreeze") as ckpt:
        stored = ckpt.load(step)["model"]
    for name, tensor in trainer.model.state_dict().items():
        assert torch.equal(tensor, stored[name]), name


def test_the_best_is_kept_and_loaded(tmp_path: Path) -> None:
    trainer = scored(tmp_path, [0.1, 0.9, 0.2, 0.3, 0.4], save_total_limit=2)
    assert steps_in(tmp_path) == [2, 4, 5]
    with df.Checkpointer(tmp_path / "deepfreeze") as ckpt:
        assert ckpt.checkpoints()[0].metrics["eval_score"] == 0.4
    assert_holds(trainer, tmp_path, 2)


def test_the_best_is_kept_though_it_is_not_to_be_loaded(tmp_path: Path) -> None:
    scored(tmp_path, [0.1, 0.9, 0.2, 0.3], save_total_limit=1, load_best_model_at_end=False)
    assert steps_in(tmp_path) == [2, 4]


def test_the_best_may_still_be_in_flight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_flight = []
    load = df.Checkpointer.load

    def looks(ckpt: df.Checkpointer, *arguments: Any, **options: Any) -> Any:
        in_flight.append(ckpt.in_flight())
        return load(ckpt, *arguments, **options)

    monkeypatch.setattr(df.Checkpointer, "load", looks)
    assert_holds(scored(tmp_path, [0.1, 0.9]), tmp_path, 2)
    assert in_flight[0] == []


def test_the_newest_best_that_was_saved_is_loaded(tmp_path: Path) -> None:
    scores = [0.1, 0.2, 0.9, 0.3]  # the best step is not saved, as with the Trainer's own
    trainer = scored(tmp_path, scores, save_steps=2, save_total_limit=1)
    assert steps_in(tmp_path) == [2, 4]
    assert_holds(trainer, tmp_path, 2)


def test_a_best_that_is_gone_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = {"run_options": {"keep": df.keep(last=1)}}
    trainer = scored(tmp_path, [0.1, 0.9, 0.2], **options)
    assert "best model is gone" in caplog.text
    assert_holds(trainer, tmp_path, 3)


def test_a_finished_training_loads_its_best_again(tmp_path: Path) -> None:
    scores = [0.1, 0.9, 0.2]
    scored(tmp_path, scores)
    trainer = scored(tmp_path, scores, resume=True)
    assert trainer.state.best_model_checkpoint == f"{tmp_path / 'deepfreeze'}@2"
    assert_holds(trainer, tmp_path, 2)


def test_a_search_is_refused(tmp_path: Path) -> None:
    with pytest.raises(df.CheckpointError, match="hyperparameter"):
        trainer_in(tmp_path, 1)._save_checkpoint(None, trial={})


RANKS = """
import sys
from pathlib import Path
import torch.distributed as dist
from examples.digest import sha256
from tests.frameworks.test_huggingface import Trainer, trained
kind = {"kind": Trainer, "save_strategy": "no"} if sys.argv[2] == "whole" else {}
trainer = trained(Path(sys.argv[1]), int(sys.argv[3]), resume=sys.argv[2] == "resume",
                  seed=int(sys.argv[4]), **kind)
digest = sha256(trainer.model.state_dict(), trainer.optimizer.state_dict())
Path(f"rank-{dist.get_rank()}").write_text(digest)
"""


def test_two_ranks_resume_bit_for_bit(tmp_path: Path) -> None:
    def job(how: str, steps: int, seed: int = 3) -> list[str]:
        run_python(
            RANKS,
            tmp_path,
            str(tmp_path),
            how,
            str(steps),
            str(seed),
            trainer="huggingface",
            ranks=2,
        )
        return [(tmp_path / f"rank-{rank}").read_text() for rank in range(2)]

    undisturbed = job("whole", 5)
    job("begin", 2)
    assert job("resume", 5, seed=77) == undisturbed


class Resumed(FrozenTrainer):
    """Notes the step from which it resumed."""

    def _load_optimizer_and_scheduler(self, checkpoint: Any) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        restored = self._opened().last_restore
        self.resumed_from = None if restored is None else restored.step


def test_the_best_and_the_latest_can_be_resumed_from(tmp_path: Path) -> None:
    """An evaluation whose loss is least in the middle."""
    first = trained(tmp_path, 3, eval_strategy="steps", eval_steps=1, metric_for_best_model="loss")
    run = first.run
    losses = {info.step: info.metrics["eval_loss"] for info in df.Checkpointer(run).checkpoints()}
    best = min(losses, key=lambda step: losses[step])
    worst = max(losses, key=lambda step: losses[step])
    assert best != worst
    expected = {
        "best": best,
        first.state.best_model_checkpoint: best,
        "best:eval_loss:max": worst,
        "latest": 3,
        f"{run}@best:eval_loss": best,
        f"{run}@2": 2,
    }
    for asked, step in expected.items():
        options = {"kind": Resumed, "metric_for_best_model": "loss", "save_strategy": "no"}
        trainer = trainer_in(tmp_path, 3, **options)
        trainer.train(resume_from_checkpoint=asked)
        assert trainer.resumed_from == step, asked


def test_what_can_not_be_resumed_from_says_why(tmp_path: Path) -> None:
    trained(tmp_path / "a", 1)
    other = trained(tmp_path / "b", 1)
    with pytest.raises(df.CheckpointError, match="this Trainer continues the run"):
        trained(tmp_path / "a", 2, resume=f"{other.run}@1")
    with pytest.raises(df.CheckpointError, match="no rule that says by which metric"):
        trained(tmp_path / "a", 2, resume="best")
    with pytest.raises(df.CheckpointError, match="no checkpoint to resume from"):
        trained(tmp_path / "c", 1, resume="best")
    assert trained(tmp_path / "d", 1, resume="latest").state.global_step == 1
