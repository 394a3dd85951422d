"""TRL's trainers with the mixin: killed, resumed, and the same as one that never stopped."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")

import deepfreeze as df
from tests.support import warm_python

from .trainer_examples import example_of, run_python
from .training import IMPORTS

STEPS = 8
KILLED = 5

# Arguments: trainer, directory, the step at which it is killed (0: none), "own" or "frozen".
TRAINING = """
import copy, hashlib, json, os, signal, sys, torch, trl
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, TrainerCallback
from transformers.trainer_utils import get_last_checkpoint
from deepfreeze.huggingface import DeepFreezeTrainerMixin

kind, place, killed, whose = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
own = getattr(trl, kind + "Trainer")
frozen = type("Frozen", (DeepFreezeTrainerMixin, own), {})

class Kill(TrainerCallback):
    def on_step_begin(self, arguments, state, control, **_):
        if killed and state.global_step == killed:
            if whose == "frozen":
                trainer.checkpointer.wait()
            os.kill(os.getpid(), signal.SIGKILL)

torch.manual_seed(3)
words = Tokenizer(models.WordLevel({str(n): n for n in range(64)}, unk_token="0"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="0", eos_token="1")
model = GPT2LMHeadModel(
    GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2, eos_token_id=1)
)
numbers = torch.randint(2, 64, (32, 18)).tolist()
text = [[" ".join(map(str, row[at:at + 6])) for at in (0, 6, 12)] for row in numbers]
rows = {
    "SFT": {"input_ids": numbers},
    "DPO": dict(zip(("prompt", "chosen", "rejected"), map(list, zip(*text)))),
}[kind]
more = {"ref_model": copy.deepcopy(model)} if kind == "DPO" else {}
arguments = getattr(trl, kind + "Config")(
    output_dir=place, max_steps=STEPS, per_device_train_batch_size=4, save_strategy="steps",
    save_steps=1, use_cpu=True, report_to=[], logging_steps=1, disable_tqdm=True, seed=3,
    data_seed=5, lr_scheduler_type="constant", max_length=32, bf16=False, learning_rate=1e-3,
)
trainer = (frozen if whose == "frozen" else own)(
    model=model, args=arguments, train_dataset=Dataset.from_dict(rows),
    processing_class=tokenizer, callbacks=[Kill()], **more,
)
last = get_last_checkpoint(place) if os.path.isdir(place) else None
trainer.train(resume_from_checkpoint=True if whose == "frozen" else last)
digest = hashlib.sha256()
for _, tensor in sorted(trainer.model.state_dict().items()):
    digest.update(tensor.numpy().tobytes())
losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
print(json.dumps([digest.hexdigest(), losses]))
""".replace("STEPS", str(STEPS))


def train(kind: str, place: Path, whose: str, killed: int = 0) -> object:
    """The digest of the weights at its end, and its losses; None if it was killed."""
    done = warm_python.run(
        [sys.executable, "-c", TRAINING, kind, str(place), str(killed), whose],
        IMPORTS["trl"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=300,
        capture_output=True,
    )
    if killed:
        assert done.returncode == -signal.SIGKILL, done.stderr
        return None
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("kind", ["SFT", "DPO"])
def test_a_killed_training_ends_as_one_that_never_stopped(tmp_path: Path, kind: str) -> None:
    undisturbed = train(kind, tmp_path / "whole", "own")
    for whose in ("frozen", "own"):
        train(kind, tmp_path / whose, whose, killed=KILLED)
        assert train(kind, tmp_path / whose, whose) == undisturbed
    with df.Checkpointer(tmp_path / "frozen" / "deepfreeze", read_only=True) as ckpt:
        assert ckpt.steps() == [*range(1, STEPS + 1)]


def test_the_example(tmp_path: Path) -> None:
    example = example_of("trl")
    run_python(example, tmp_path, trainer="trl")
    told = run_python(
        example + "\nprint('from', trainer.checkpointer.last_restore.step)",
        tmp_path,
        trainer="trl",
    )
    assert "from 10" in told
