"""Runs, forks, steps and flags, as `deepfreeze explore` shows them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from explore_kit import answers, named, numbers_of, save_all, weights
from testkit import attempt_of, data_file, data_start, flip

import deepfreeze as df
from deepfreeze import _core
from deepfreeze.errors import CheckpointError
from deepfreeze.exploring import runs as runs_module
from deepfreeze.exploring.answers import Answers
from deepfreeze.exploring.cache import Cache
from deepfreeze.exploring.discovering import runs_of
from deepfreeze.exploring.flags import flags_of
from deepfreeze.exploring.runs import read_runs
from deepfreeze.exploring.tensor_reading import Buffer
from deepfreeze.looking import native


def asked(made: Answers, *words: str) -> Any:
    return json.loads(made.of(list(words))[1])


def forked(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    save_all(tree / "base", {step: weights(step) for step in (1, 2, 3)}, keep=df.keep(last=2))
    save_all(tree / "a" / "fork", {3: weights(30)}, parent=(tree / "base", 2))
    save_all(tree / "again", {4: weights(40)}, parent=(tree / "a" / "fork", 3))
    return tree


def test_forks_of_forks_are_linked_both_ways(tmp_path: Path) -> None:
    runs = read_runs(runs_of([str(forked(tmp_path))]))
    assert {run.name for run in runs} == {"base", "a/fork", "again"}
    base, fork, again = (named(runs, name) for name in ("base", "a/fork", "again"))
    assert (base.forks, fork.forks, again.forks) == ([fork.id], [again.id], [])
    assert (fork.parents[0].run, fork.parents[0].step) == (base.id, 2)
    assert again.parents[0].run == fork.id


def test_a_fork_is_compared_with_the_step_that_it_left(tmp_path: Path) -> None:
    made = answers(tmp_path / "cache", forked(tmp_path))
    fork = named(made.runs, "a/fork")
    delta = made.numbers(fork.id).matrix("delta")[:, 0]
    now, before = weights(30)["model"], weights(2)["model"]
    expected = [np.linalg.norm(now[key] - before[key]) for key in now]
    np.testing.assert_allclose(delta, expected, rtol=1e-6)


def first_deltas(cache: Path, tree: Path, name: str) -> dict[int, list[float]]:
    """The changes of all tensors of a run, by step."""
    made = answers(cache, tree)
    numbers = made.numbers(named(made.runs, name).id)
    deltas = numbers.matrix("delta")
    return {step.step: list(deltas[:, place]) for place, step in enumerate(numbers.columns)}


def distances(now: int, before: int) -> Any:
    """Between the weights of two steps."""
    one, other = weights(now)["model"], weights(before)["model"]
    expected = [np.linalg.norm(one[key].astype("f8") - other[key]) for key in one]
    return pytest.approx(expected, rel=1e-6)


def go_back(run: Path) -> None:
    """Saves step 2 again, from step 1 on, with other weights."""
    with df.Checkpointer(run) as ckpt:
        assert ckpt.restore(weights(0), step=1) == 1
        ckpt.save(2, weights(50)).wait()


def test_a_fork_is_not_compared_with_a_later_save_of_its_step(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    save_all(tree / "base", {step: weights(step) for step in (1, 2)})
    save_all(tree / "a" / "fork", {3: weights(30)}, parent=(tree / "base", 2))
    old = attempt_of(tree / "base", 2)
    go_back(tree / "base")
    assert first_deltas(tmp_path / "cache", tree, "a/fork") == {3: distances(30, 2)}
    shutil.rmtree(old)
    assert np.isnan(first_deltas(tmp_path / "cache", tree, "a/fork")[3]).all()


def test_a_step_whose_claim_is_damaged_is_not_compared_with_the_fork_point(tmp_path: Path) -> None:
    tree = forked(tmp_path)
    with df.Checkpointer(tree / "a" / "fork") as ckpt:
        assert ckpt.restore(weights(0)) == 3
        ckpt.save(4, weights(31)).wait()
    found = first_deltas(tmp_path / "one", tree, "a/fork")
    assert found == {3: distances(30, 2), 4: distances(31, 30)}
    flip(tree / "a" / "fork" / "generation-00000002.json", 40)
    found = first_deltas(tmp_path / "cache", tree, "a/fork")
    assert found[3] == distances(30, 2)
    assert np.isnan(found[4]).all()


def test_a_fork_by_copy_goes_on_from_its_copy(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    save_all(tree / "base", {step: weights(step) for step in (1, 2)})
    go_back(tree / "base")
    df.fork(tree / "base", 2, tree / "copy")
    with df.Checkpointer(tree / "copy") as ckpt:
        assert ckpt.restore(weights(0)) == 2
        ckpt.save(3, weights(32)).wait()
    found = first_deltas(tmp_path / "cache", tree, "copy")
    assert found == {2: [0, 0, 0], 3: distances(32, 50)}


def test_ancestors_of_a_named_run_are_added(tmp_path: Path) -> None:
    tree = forked(tmp_path)
    runs = read_runs(runs_of([str(tree / "again")]))
    assert {run.path.name: run.named for run in runs} == {
        "again": True, "fork": False, "base": False,
    }  # fmt: skip
    shutil.rmtree(tree / "base")
    runs = read_runs(runs_of([str(tree / "again")]))
    assert {run.path.name for run in runs} == {"again", "fork"}
    assert named(runs, "a/fork").parents[0].cause


def test_a_step_that_was_given_a_tag_is_kept_by_it(tmp_path: Path) -> None:
    save_all(tmp_path / "run", {1: weights(1), 2: weights(2)})
    df.tag(tmp_path / "run", 1, {"release": "1.0"})
    (run,) = read_runs(runs_of([str(tmp_path)]))
    assert [step.kept[-1:] for step in run.steps] == [["tag"], ["newest"]]
    assert run.steps[0].tags == {"lr": "0.1", "release": "1.0"}


def test_steps_tell_what_became_of_them(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with df.Checkpointer(run, keep=df.keep()) as ckpt:
        for step in (1, 2, 3, 4):
            ckpt.save(step, weights(step), metrics={"loss": step}).wait()
    with df.Checkpointer(run, keep=df.keep(last=9, every=2, best=("loss", "max"))) as ckpt:
        state = weights(0)
        assert ckpt.restore(state, step=2) == 2
        ckpt.save(5, weights(5), metrics={"loss": 0.5}).wait()
    (made,) = read_runs(runs_of([str(run)]))
    found = {step.step: (step.state, step.kept) for step in made.steps}
    assert found == {
        1: ("committed", ["last"]), 2: ("committed", ["last", "every", "best"]),
        3: ("abandoned", []), 4: ("abandoned", []), 5: ("committed", ["last"]),
    }  # fmt: skip
    assert made.keep.text() == "the last 9, every 2th step, the best 1 by loss (max)"
    (attempt_of(run, 5) / "manifest.json").unlink()
    (made,) = read_runs(runs_of([str(run)]))
    assert {step.step: step.state for step in made.steps}[5] == "undecided"


def test_the_best_has_no_nan_and_of_two_the_newer_is_kept(tmp_path: Path) -> None:
    run = tmp_path / "run"
    states = {step: {"w": np.array([np.nan if step == 3 else step])} for step in (1, 2, 3, 4)}
    with df.Checkpointer(run, statistics=True, keep=df.keep(last=9, best=("loss", "min"))) as ckpt:
        for step, loss in ((1, 0.5), (2, 0.5), (3, 0.1), (4, 0.9)):
            ckpt.save(step, states[step], metrics={"loss": loss}).wait()
    (made,) = read_runs(runs_of([str(run)]))
    assert [step.step for step in made.steps if "best" in step.kept] == [2]
    assert [step.step for step in made.steps if step.best] == [2], "as the core has it"


@pytest.mark.parametrize("part", ["data", "header", "manifest"])
def test_a_damaged_step_is_bad_and_the_rest_works(tmp_path: Path, part: str) -> None:
    run = tmp_path / "run"
    save_all(run, {step: weights(step) for step in (1, 2, 3)})
    file = data_file(run, 2)
    if part == "manifest":
        flip(attempt_of(run, 2) / "manifest.json", 100)
    else:
        flip(file, data_start(file) + 8 if part == "data" else 200)
    made = answers(tmp_path / "cache", run)
    steps = {step.step: step for step in made.runs[0].steps}
    assert [steps[step].state for step in (1, 2, 3)] == ["committed", "bad", "committed"]
    assert steps[2].fault
    numbers = made.numbers(made.runs[0].id)
    norms = numbers.matrix("norm")
    known = [step.step for step in numbers.columns]
    assert np.isfinite(norms[:, [known.index(1), known.index(3)]]).all()
    (flag,) = [flag for flag in flags_of(numbers) if flag["kind"] == "damaged"]
    assert flag["step"] == 2
    words = [made.runs[0].id, steps[1].attempt, made.runs[0].id, steps[2].attempt]
    if part == "data":
        damaged = [row["change"] for row in asked(made, "compare", *words)["tensors"]]
        assert "damaged" in damaged
    else:
        with pytest.raises(CheckpointError):
            made.compare(*words)


@pytest.mark.parametrize("moment", ["before", "within"])
@pytest.mark.parametrize("cause", ["deleted", "unreadable"])
def test_a_step_that_cannot_be_read_now_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, cause: str
) -> None:
    run = tmp_path / "run"
    save_all(run, {step: weights(step) for step in (1, 2)})
    made = Answers(read_runs(runs_of([str(run)])), Cache(tmp_path / "cache"))
    owner, name = (_core, "open_checkpoint") if moment == "before" else (Buffer, "read")
    real = getattr(owner, name)

    def failing(*arguments: Any) -> Any:
        if cause == "unreadable":
            raise CheckpointError("too many open files")
        shutil.rmtree(attempt_of(run, 2))
        return real(*arguments)

    numbers = made.numbers(made.runs[0].id)
    numbers.compute(0, lambda _: None)
    monkeypatch.setattr(owner, name, failing)
    numbers.compute(1, lambda _: None)
    state = {"deleted": "deleted", "unreadable": "committed"}[cause]
    assert (numbers.columns[1].state, numbers.columns[1].fault) == (state, "")
    assert cause.replace("unreadable", "too many open files") in numbers.columns[1].note
    assert asked(made, "flags", made.runs[0].id) == {"flags": [], "missing": 0}
    assert asked(made, "tensors", made.runs[0].id)["fates"] == {
        numbers.columns[1].attempt: {"state": state, "fault": "", "note": numbers.columns[1].note}
    }


def test_a_scrub_is_told_and_damaged_records_of_it_are_not(tmp_path: Path) -> None:
    run = tmp_path / "run"
    save_all(run, {1: weights(1)})
    assert subprocess.run([native.path(), "scrub", run], check=False).returncode == 0
    (step,) = read_runs(runs_of([str(run)]))[0].steps
    assert step.read_good
    assert step.read_micros > step.time_micros
    for text in ("", "[]", '{"run_id": 3}', (run / "scrub.json").read_text()[:-9]):
        (run / "scrub.json").write_text(text)
        (step,) = read_runs(runs_of([str(run)]))[0].steps
        assert step.read_micros == 0


DEEP = "[" * 100_000


@pytest.mark.parametrize("text", [
    "", "[]", "3", DEEP, '{"keep": 3}', '{"keep": [1]}', '{"keep": {"last": "3"}}',
    '{"keep": {"last": true}}', '{"keep": {"last": -2}}', '{"keep": {"every": 1e999}}',
    '{"keep": {"every": 0.5}}', '{"keep": {"best": 3}}', '{"keep": {"best": {"metric": "loss"}}}',
    '{"keep": {"best": {"metric": "loss", "better": "max", "count": 1e999}}}',
    '{"keep": {"best": {"metric": "loss", "better": "most", "count": 1}}}',
    '{"keep": {}, "wall_micros": 1e999}', '{"keep": {}, "wall_micros": [1]}',
])  # fmt: skip
def test_an_odd_claim_has_no_rules_and_ends_nothing(tmp_path: Path, text: str) -> None:
    run = tmp_path / "run"
    save_all(run, {1: weights(1)})
    (run / "generation-00000001.json").write_text(text)
    (found,) = read_runs(runs_of([str(run)]))
    assert (found.keep.text(), found.fault) == ("", "")
    assert [step.kept for step in found.steps] == [["newest"]]


@pytest.mark.parametrize("value", ["1e999", "[]", DEEP])
def test_an_odd_record_of_a_scrub_ends_nothing(tmp_path: Path, value: str) -> None:
    run = tmp_path / "run"
    save_all(run, {1: weights(1)})
    (found,) = read_runs(runs_of([str(run)]))
    name = attempt_of(run, 1).name
    each = f'{{"directory": "{name}", "good": true, "wall_micros": {value}}}'
    (run / "scrub.json").write_text(f'{{"run_id": "{found.run_id}", "checkpoints": [{each}]}}')
    (found,) = read_runs(runs_of([str(run)]))
    assert (found.fault, found.steps[0].read_micros) == ("", 0)


@pytest.mark.parametrize("odd", [False, True])
def test_a_run_that_is_deleted_while_it_is_read_does_not_end_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, odd: bool
) -> None:
    for name in ("one", "other"):
        save_all(tmp_path / name, {1: weights(1)})
    real = runs_module.steps_of

    def deleting(listed: Any, infos: Any) -> Any:
        if infos[0].path.startswith(str(tmp_path / "one")):
            shutil.rmtree(tmp_path / "one")
            return real([{}] if odd else listed, infos)
        return real(listed, infos)

    monkeypatch.setattr(runs_module, "steps_of", deleting)
    one, other = read_runs([tmp_path / "one", tmp_path / "other"])
    assert bool(one.fault) == odd
    assert not other.fault
    assert [step.step for step in other.steps] == [1]


def test_runs_without_a_step_and_with_one(tmp_path: Path) -> None:
    with df.Checkpointer(tmp_path / "tree" / "empty") as ckpt:
        ckpt.prewarm(weights(1))
    save_all(tmp_path / "tree" / "one", {7: weights(7)})
    made = answers(tmp_path / "cache", tmp_path / "tree")
    for run in made.runs:
        about = asked(made, "tensors", run.id)
        count = 0 if run.name == "empty" else 3
        assert len(about["tensors"]) == count
        assert len(made.of(["matrix", run.id, "norm"])[1]) == 4 * count
        assert asked(made, "flags", run.id) == {"flags": [], "missing": 0}
    series = asked(made, "tensor", named(made.runs, "one").id, "0")["series"]
    assert series["delta"] == [None]


def test_a_comparison_has_tensors_and_values(tmp_path: Path) -> None:
    one = {"w": np.ones(4, "f4"), "same": np.ones(2), "gone": np.ones(1), "lr": 0.1}
    other = {"w": np.full(4, 2, "f4"), "same": np.ones(2), "new": np.ones(1), "lr": 0.2}
    save_all(tmp_path / "run", {1: one, 2: other})
    made = answers(tmp_path / "cache", tmp_path / "run")
    (run,) = made.runs
    words = [run.id, run.steps[0].attempt, run.id, run.steps[1].attempt]
    found = asked(made, "compare", *words)
    rows = {row["key"]: row for row in found["tensors"]}
    assert {key: row["change"] for key, row in rows.items()} == {
        "w": "changed", "same": "same", "new": "added", "gone": "removed",
    }  # fmt: skip
    assert (rows["w"]["delta"], rows["w"]["norm"], rows["w"]["changed"]) == (2, 4, 4)
    assert found["values"] == [{"path": "lr", "before": "0.1", "after": "0.2"}]
    back = asked(made, "compare", *words[2:], *words[:2])
    assert {row["key"]: row["change"] for row in back["tensors"]}["gone"] == "added"


def trained(run: Path, broken: str, steps: int = 14) -> None:
    """A small network; one of its layers is broken on purpose, or none is."""
    torch.manual_seed(3)
    dtype = torch.bfloat16 if broken == "rounding" else torch.float32
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 16), torch.nn.Linear(16, 1)
    ).to(dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-6 if broken == "rounding" else 1e-3)
    state = {"model": model, "optimizer": optimizer}
    kept = model[2].weight.detach().clone()
    with df.Checkpointer(run) as ckpt:
        for step in range(1, steps + 1):
            data = torch.randn(32, 8, dtype=dtype)
            optimizer.zero_grad()
            (model(data) - data.sum(1, keepdim=True)).square().mean().backward()
            optimizer.step()
            with torch.no_grad():
                if broken == "dead":
                    model[2].weight.copy_(kept)
                if broken == "exploding" and step == 10:
                    model[2].weight.mul_(3)
                if broken == "nudged" and step == 10:
                    model[2].weight.mul_(1.02)
                if broken == "non-finite" and step >= 9:
                    model[2].weight[0, 0] = torch.nan
            handle = ckpt.save(step, state)
            assert handle is not None
            handle.wait()


@pytest.mark.parametrize(
    ("broken", "kind", "step"),
    [
        ("dead", "dead", 2),
        ("exploding", "exploding", 10),
        ("non-finite", "non-finite", 9),
        ("rounding", "lost to rounding", 2),
        ("nudged", "", 0),
        ("", "", 0),
    ],
)
def test_flags_find_what_is_broken_and_nothing_else(
    tmp_path: Path, broken: str, kind: str, step: int
) -> None:
    trained(tmp_path / "run", broken)
    flags = flags_of(numbers_of(tmp_path / "cache", tmp_path / "run"))
    first = [flag for flag in flags if flag["key"] == "model.2.weight"]
    if not kind:
        assert flags == []
        return
    assert kind in {flag["kind"] for flag in first}
    assert min(flag["step"] for flag in first if flag["kind"] == kind) == step
    if broken in ("dead", "exploding"):
        assert {flag["key"] for flag in flags} == {"model.2.weight"}
