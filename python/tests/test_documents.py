"""The programs and commands of docs/start, docs/guides and the pages beside them run as they stand.

tests/frameworks/test_moving.py has those that need another framework.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import cli_page
import deepfreeze as df
from deepfreeze import errors
from deepfreeze.base import program
from stamp import ROOT
from tests.support import warm_python

DOCS = ROOT / "docs"
SECONDS = 120.0  # for waits that must not hang
ALONE = {"start/ranks", "guides/moving", "README"}  # that a test of their own runs
PAGES = sorted(
    str(path.relative_to(DOCS).with_suffix(""))
    for path in (*DOCS.glob("start/*.md"), *DOCS.glob("guides/*.md"), *(
        DOCS / f"{name}.md" for name in ("README", "concepts", "errors", "faq", "metrics")))
)  # fmt: skip
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
# Long enough to be killed by hand; shorter here.
LENGTHS = {"start/torch": ("EPOCHS = 500", "EPOCHS = 10"), "start/ranks": ("10_001", "5")}
FAULTY = 2  # the program's exit codes from here on: wrong usage, or a failure


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / f"{page}.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def program_of(page: str) -> str:
    """Its blocks, one after the other."""
    text = "\n".join(blocks(page, "python"))
    if page not in LENGTHS:
        return text
    long, short = LENGTHS[page]
    assert text.count(long) == 1
    return text.replace(long, short)


def run_page(page: str, **names: object) -> dict[str, object]:
    """Runs its program in the current directory; returns its names."""
    found: dict[str, object] = dict(names)
    exec(compile(program_of(page), f"{page}.md", "exec"), found)
    return found


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    native = program.find()
    assert native is not None
    monkeypatch.setenv("PATH", f"{native.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    torch.use_deterministic_algorithms(False)  # df.determinism() of a page


def call(command: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert done.returncode < FAULTY, f"{command}\n{done.stdout}{done.stderr}"
    return done


def call_all(page: str) -> list[str]:
    """The outputs of its commands, each of which has a line; so may a comment."""
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    return [call(line).stdout for line in lines if not line.startswith("#")]


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ALONE])
def test_a_page_runs(page: str) -> None:
    if page == "start/operations":  # looks at the run of another page
        run_page("start/torch")
    run_page(page)
    call_all(page)


def test_every_page_has_a_program_or_commands() -> None:
    assert len(PAGES) > 10
    assert all(blocks(page, "python") or blocks(page, "sh") for page in PAGES)


def test_the_lines_of_the_first_page_are_enough() -> None:
    run_page("README", state={"w": torch.zeros(3)}, step=1)
    assert run_page("README", state={"w": torch.zeros(3)}, step=2)["start"] == 1


@pytest.mark.parametrize("last", [230, 224], ids=["within an epoch", "at its end"])
def test_a_loop_goes_on_where_it_was(last: int) -> None:
    text = program_of("start/torch")
    whole = run_page("start/torch")["model"]
    os.rename("runs/first", "runs/whole")
    ends = text.replace("step += 1\n", f"step += 1\n            assert step <= {last}\n")
    assert ends != text
    with pytest.raises(AssertionError):
        exec(compile(ends, "train.py", "exec"), {})
    with df.Checkpointer("runs/first", read_only=True) as ckpt:
        assert ckpt.latest() == last
    resumed = run_page("start/torch")["model"]
    assert isinstance(whole, torch.nn.Module)
    assert isinstance(resumed, torch.nn.Module)
    for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)
    assert call("deepfreeze diff runs/whole@latest runs/first@latest").returncode == 0


def test_a_killed_loop_is_bit_for_bit_as_the_page_says(place: Path) -> None:
    text = program_of("start/torch").replace("EPOCHS = 10", "EPOCHS = 2")
    (place / "train.py").write_text(text)
    environment = {**os.environ, **ONE_THREAD, "DEEPFREEZE_FAIL": "commit.sealed=kill@40"}
    killed = subprocess.run(
        [sys.executable, "train.py"], env=environment, check=False, timeout=SECONDS
    )
    assert killed.returncode == -signal.SIGKILL
    with df.Checkpointer("runs/first", read_only=True) as ckpt:
        assert ckpt.latest() is not None
    for line in blocks("start/torch", "bash")[0].splitlines():
        if line == "python train.py":
            exec(compile(text, "train.py", "exec"), {})
        else:
            done = call(line)
    assert done.returncode == 0
    assert done.stdout == blocks("start/torch", "text")[0]


STEP_LR = "StepLR(optim, 12, gamma=0.5)"
LAMBDA_LR = "LambdaLR(optim, lambda step: 0.97**step)"


@pytest.mark.parametrize("sched", [STEP_LR, LAMBDA_LR], ids=["StepLR", "LambdaLR"])
def test_a_fork_that_is_stopped_and_resumed_is_the_same(sched: str) -> None:
    text = program_of("guides/forks").replace(STEP_LR, sched)
    once = "    train(str(new), factor, 50)"
    assert sched in text
    assert once in text
    stopped = text.replace(once, f"    train(str(new), factor, 37)\n{once}")
    exec(compile(text, "forks.md", "exec"), {})
    exec(compile(stopped.replace("runs/", "again/"), "forks.md", "exec"), {})
    rates = {}
    for fork in ("rate-0.5", "rate-2.0"):
        done = call(f"deepfreeze diff runs/{fork}@50 again/{fork}@50")
        assert done.returncode == 0, done.stdout
        with df.Checkpointer(f"runs/{fork}", read_only=True) as ckpt:
            rates[fork] = ckpt.load(50)["sched"]["_last_lr"][0]
    assert rates["rate-2.0"] == pytest.approx(4 * rates["rate-0.5"])


def test_the_divergence_is_told_as_printed() -> None:
    run_page("guides/divergence")
    told = blocks("guides/divergence", "text")[0].split()
    assert call_all("guides/divergence")[0].split() == told


def test_the_tier_brings_the_step_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    run_page("guides/tiers")
    assert capsys.readouterr().out == "went on from step 10\n"
    assert "goes on from step 10" in (DOCS / "guides" / "tiers.md").read_text()


def test_a_resumed_run_is_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    run_page("faq")
    assert capsys.readouterr().out.endswith("True\n")


def changed(text: str, diff: str, sign: str) -> str:
    """A program after (+) or before (-) the lines of a diff, which are found in it."""
    lines = diff.splitlines()
    before = "\n".join(line[1:] for line in lines if line[:1] in ("-", " ", ""))
    after = "\n".join(line[1:] for line in lines if line[:1] in (sign, " ", ""))
    assert before in text
    return text.replace(before, after)


@pytest.mark.parametrize("sign", ["-", "+"], ids=["ddp", "fsdp2"])
def test_a_job_goes_on_with_another_number_of_ranks(place: Path, sign: str) -> None:
    text = changed(program_of("start/ranks"), blocks("start/ranks", "diff")[0], sign)
    for ranks, end in ((2, "5"), (3, "7")):
        (place / "train.py").write_text(text.replace("start + 1, 5)", f"start + 1, {end})"))
        done = warm_python.run(
            [sys.executable, "-m", "tests.frameworks.forked_ranks", str(ranks), "train.py"],
            warm_python.RANKS,
            cwd=place,
            env={**os.environ, "PYTHONPATH": str(ROOT), **ONE_THREAD},
            timeout=SECONDS,
            capture_output=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    with df.Checkpointer("runs/ddp", read_only=True) as ckpt:
        assert ckpt.steps() == [5, 6]
        assert [info.world_size for info in ckpt.checkpoints()] == [3, 3]
    call_all("start/ranks")
    assert (place / "model.safetensors").exists()


@pytest.mark.parametrize("sign", ["-", "+"])
def test_a_loop_with_dcp_before_and_after(sign: str) -> None:
    lines = blocks("guides/moving", "diff")[0].splitlines()
    text = "\n".join(line[1:] for line in lines if line[:1] in (sign, " ", ""))
    for start, total in ((0, 20), (20, 30)):
        model = torch.nn.Linear(3, 2)
        optim = torch.optim.Adam(model.parameters())

        def train_step(model=model, optim=optim) -> None:
            optim.zero_grad()
            model(torch.ones(3)).sum().backward()
            optim.step()

        names: dict[str, object] = {"model": model, "optim": optim, "train_step": train_step,
                                    "total": total}  # fmt: skip
        exec(compile(text, "loop.py", "exec"), names)
        assert names["start"] == start
        assert {float(each["step"]) for each in optim.state.values()} == {total}


def test_the_page_of_the_program_is_what_the_program_says() -> None:
    native = program.find()
    assert cli_page.PAGE.read_text() == cli_page.page(str(native)), "run tools/cli_page.py"


def test_the_page_of_metrics_has_all_of_them() -> None:
    sources = (ROOT / "python" / "deepfreeze" / "metrics" / "counters.py").read_text()
    plain = re.findall(r'_(?:counter|gauge|histogram)\(\s*"(\w+)"', sources)
    of_tiers = re.findall(r'family\(\s*"(\w+)"', sources)
    named = {f"deepfreeze_{name}" for name in plain} | {f"deepfreeze_tier_{x}" for x in of_tiers}
    told = set(re.findall(r"^\| `(\w+)`", (DOCS / "metrics.md").read_text(), re.MULTILINE))
    assert len(named) > 15
    assert told == named


def test_the_page_of_errors_has_all_of_them() -> None:
    text = (DOCS / "errors.md").read_text()
    codes = re.findall(r"^  k(\w+),", (ROOT / "include/deepfreeze/result.h").read_text(), re.M)
    names = {re.sub(r"(?<!^)(?=[A-Z])", "_", code).lower() for code in codes}
    classes = {kind.__name__ for kind in errors._TYPES.values()}
    assert len(names) > 15
    assert {name for name in names if f"`{name}`" not in text} == set()
    assert {name for name in classes if f"`{name}`" not in text} == set()
