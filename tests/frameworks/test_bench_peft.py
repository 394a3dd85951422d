"""lab.experiments.unchanged with PEFT: the contents of filters, and of DeepFreeze's save."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("peft", reason="of build/frameworks-venv")

import torch
from peft import get_peft_model_state_dict

from lab.networks.peft_workloads import WORKLOADS
from lab.tests.conftest import one_thread  # noqa: F401 (a fixture that is used by itself)
from lab.writers.loop import Saver
from lab.writers.loop_partial import AdapterSafetensors, AdapterTorchSave

ROOT = Path(__file__).resolve().parents[2]
SAVERS = ["df-default", "torch-save", "adapter", "adapter-weights"]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("peft")
    command = [sys.executable, "-m", "lab.experiments.unchanged", "--smoke", "--savers", *SAVERS]
    command += ["--threads", "1"]
    command += ["--directory", str(place), "--json", str(place / "all.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (one,) = json.loads((place / "all.json").read_text())["experiments"]
    assert one["workload"] == "tiny-peft"
    return {part["saver"]: part for part in one["partial"]} | {"state": one["state_bytes"]}


def test_a_save_of_all_writes_what_changed_and_comes_back_whole(parts: dict[str, Any]) -> None:
    ours, whole = parts["df-default"], parts["torch-save"]
    assert ours["new_bytes"]["median"] < parts["state"] / 10
    assert whole["new_bytes"]["median"] > parts["state"]
    assert (ours["lost_bytes"], whole["lost_bytes"]) == (0, 0)


def test_what_a_filter_saves_does_not_come_back_whole(parts: dict[str, Any]) -> None:
    assert parts["adapter"]["lost_parts"] == ["model"]
    assert parts["adapter-weights"]["lost_parts"] == ["model", "optim"]


@pytest.mark.parametrize("kind", [AdapterTorchSave, AdapterSafetensors])
def test_the_adapter_comes_back(kind: type[AdapterTorchSave], tmp_path: Path) -> None:
    training, other = (WORKLOADS["tiny-peft"].build(seed, in_backward=False) for seed in (1, 2))
    saver = kind(training, tmp_path / "run", 1)
    training.train_step(1, saver)
    saver.after_step(1)
    saver.close()
    wanted = get_peft_model_state_dict(training.parts.model)
    other.train_step(1, Saver(other, Path(), 1))
    saver.restore(other)
    found = get_peft_model_state_dict(other.parts.model)
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
