"""The programs in README.md and docs/using.md run as they stand, and resume after a kill."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import deepfreeze as df

ROOT = Path(__file__).resolve().parents[2]
STEPS = "10_001"


def block(page: str, language: str) -> str:
    """The first block of a page in that language."""
    text = (ROOT / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[0]


def program(end: str) -> str:
    text = block("README.md", "python")
    assert text.count(STEPS) == 1
    return text.replace(STEPS, end)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_program_in_the_readme_runs_and_resumes() -> None:
    exec(compile(program("5"), "first.py", "exec"), {})
    assert df.Checkpointer("runs/first", read_only=True).latest() == 4

    found: dict[str, object] = {}
    exec(compile(program("101"), "first.py", "exec"), found)
    assert found["start"] == 4
    assert df.Checkpointer("runs/first", read_only=True).steps() == [98, 99, 100]


def test_it_can_be_killed_and_run_again(place: Path) -> None:
    (place / "first.py").write_text(program(STEPS))
    command = [sys.executable, "-u", "first.py"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout
        printed = [next(first.stdout) for _ in range(20)]
        first.kill()
        printed += first.stdout.readlines()
    last = int(printed[-1])
    (place / "first.py").write_text(program(str(last + 3)))
    again = subprocess.run(command, capture_output=True, text=True, check=True, timeout=200)
    steps = [int(each) for each in again.stdout.split()]
    # The last save may have been copied, the one before it sealed; or both done, one not printed.
    assert last - 1 <= steps[0] <= last + 2
    assert steps[-1] == last + 2


def test_its_files_are_read_without_deepfreeze(place: Path) -> None:
    found: dict[str, object] = {}
    exec(compile(program("3"), "first.py", "exec"), found)
    (file,) = place.glob("runs/first/step-000000000002-*/rank-00000-of-00001-0-of-1.safetensors")
    assert isinstance(model := found["model"], torch.nn.Linear)
    assert torch.equal(load_file(file)["model.weight"], model.weight)


def test_a_copy_of_one_step_is_a_run(place: Path) -> None:
    exec(compile(program("4"), "first.py", "exec"), {})
    run, copy = place / "runs" / "first", place / "copy"
    (step,) = run.glob("step-000000000003-*")
    shutil.copytree(step, copy / step.name)
    shutil.copy(run / "deepfreeze.json", copy)
    shutil.rmtree(run)
    copy.rename(run)
    assert df.Checkpointer(run, read_only=True).steps() == [3]
    found: dict[str, object] = {}
    exec(compile(program("6"), "first.py", "exec"), found)
    assert found["start"] == 3
    assert df.Checkpointer(run, read_only=True).steps() == [3, 4, 5]


@pytest.mark.parametrize("sign", ["-", "+"])
def test_the_loop_before_and_after(sign: str) -> None:
    """In docs/using.md: the lines before (-) and those after (+) are programs, and both resume."""
    lines = block("docs/using.md", "diff").splitlines()
    text = "\n".join(line[1:] for line in lines if line[:1] in (sign, " ", ""))
    for start, total in ((0, 100), (100, 200)):
        model = torch.nn.Linear(3, 2)
        optim = torch.optim.Adam(model.parameters())
        sched = torch.optim.lr_scheduler.StepLR(optim, 50)

        def train_step(model=model, optim=optim, sched=sched) -> None:
            optim.zero_grad()
            model(torch.ones(3)).sum().backward()
            optim.step()
            sched.step()

        head = "import os\nimport torch\n"
        names: dict[str, object] = {"model": model, "optim": optim, "sched": sched,
                                    "train_step": train_step, "total": total}  # fmt: skip
        exec(compile(head + text, "loop.py", "exec"), names)
        assert names["start"] == start
        assert sched.last_epoch == total
