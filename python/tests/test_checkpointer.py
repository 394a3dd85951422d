import logging
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from testkit import attempt_of, data_file, data_start, flip, save

import deepfreeze as df
from deepfreeze import _core


def test_prewarm_sets_up_and_saves_nothing(run: Path) -> None:
    state = {"x": torch.arange(1 << 20), "epoch": 3}
    with df.Checkpointer(run) as ckpt:
        ckpt.prewarm(state)
        assert ckpt.steps() == []
        assert [path.name for path in run.glob("generation-*")] == ["generation-00000001.json"]
        save(ckpt, 1, state)
        ckpt.prewarm(state)
        assert ckpt.steps() == [1]
        with pytest.raises(df.EncodeError, match=r"what\.is: "):
            ckpt.prewarm({"what": {"is": object()}})
    with pytest.raises(df.CheckpointError, match="closed"):
        ckpt.prewarm(state)


def test_nothing_committed_restores_to_none(ckpt: df.Checkpointer) -> None:
    state = {"x": torch.ones(1)}
    assert ckpt.restore(state) is None
    assert ckpt.latest() is None
    assert ckpt.steps() == []
    assert ckpt.last_restore is None
    with pytest.raises(df.CheckpointError, match="no checkpoint to load"):
        ckpt.load()
    with pytest.raises(df.CheckpointError, match="no checkpoint of step 3"):
        ckpt.restore(state, step=3)
    with pytest.raises(TypeError, match=r"^'dict' object cannot be interpreted as an integer$"):
        ckpt.load(state)  # type: ignore[arg-type]


def test_the_loop_of_the_readme(run: Path) -> None:
    def train(total: int) -> tuple[int | None, list[float]]:
        model = torch.nn.Linear(2, 1)
        state = {"model": model, "rng": df.RNG()}
        losses = []
        with df.Checkpointer(run, every=df.every(steps=4), keep=df.keep(last=3)) as ckpt:
            start = ckpt.restore(state)
            for step in range((start or 0) + 1, total + 1):
                with torch.no_grad():
                    model.weight += torch.rand(1)
                losses.append(model.weight.sum().item())
                ckpt.step(step, state, metrics={"loss": losses[-1]})
        return start, losses

    torch.manual_seed(0)
    start, losses = train(8)
    assert start is None
    torch.manual_seed(99)
    start, more = train(16)
    assert start == 8
    torch.manual_seed(99)
    assert train(16) == (16, [])
    with df.Checkpointer(run) as ckpt:
        assert ckpt.steps() == [8, 12, 16]
        assert ckpt.checkpoints()[0].metrics == {"loss": more[-1]}
    assert len(losses) == len(more) == 8


def test_a_handle_announces_each_level(ckpt: df.Checkpointer) -> None:
    handle = ckpt.save(7, {"x": torch.ones(1000)})
    assert handle is not None
    for level in ("captured", "local", "durable"):
        future: Future[int] = getattr(handle, level)
        assert future.result(timeout=60) == 7
    status = handle.status()
    assert (status.step, status.captured, status.local, status.durable) == (7, True, True, True)
    assert status.bytes >= 4000
    assert status.bytes_written >= 4000
    assert status.durable_seconds >= status.stall_seconds > 0
    assert status.error is None
    with pytest.raises(ValueError, match="level"):
        handle.wait("saved")  # type: ignore[arg-type]


def test_a_wait_that_takes_too_long_is_a_timeout() -> None:
    handle = df.SaveHandle(3, None)
    with pytest.raises(TimeoutError, match="step 3 is not local"):
        handle.wait("local", timeout=0.01)


def test_metrics_tags_and_environment_are_kept(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"a": 1}, metrics={"loss": torch.tensor(0.5), "acc": 1}, tags={"why": "test"})
    (info,) = ckpt.checkpoints()
    assert info.metrics == {"loss": 0.5, "acc": 1.0}
    assert info.tags == {"why": "test"}
    assert info.environment["torch"] == torch.__version__
    assert info.environment["num_threads"] == str(torch.get_num_threads())
    assert info.world_size == 1
    assert Path(info.path) == attempt_of(ckpt.path, 1)


@pytest.mark.parametrize("step", [-1, True, 1.5, "1", None])
def test_a_step_that_is_none(ckpt: df.Checkpointer, step: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        ckpt.save(step, {"a": 1})
    with pytest.raises(TypeError):
        ckpt.save(1, {"a": 1}, tags={"a": 1})  # type: ignore[dict-item]


def test_numpy_integers_are_steps(ckpt: df.Checkpointer) -> None:
    save(ckpt, np.int64(5), {"a": 1})  # type: ignore[arg-type]
    assert ckpt.latest() == 5


def test_an_explicit_step_is_restored(ckpt: df.Checkpointer) -> None:
    for step in (1, 2, 3):
        save(ckpt, step, {"x": torch.full((2,), float(step))})
    live = {"x": torch.zeros(2)}
    assert ckpt.restore(live, step=2) == 2
    assert live["x"].tolist() == [2.0, 2.0]


def test_after_a_rollback_the_old_line_is_abandoned(ckpt: df.Checkpointer) -> None:
    for step in (1, 2, 3):
        save(ckpt, step, {"x": torch.full((1,), float(step))})
    live = {"x": torch.zeros(1)}
    ckpt.restore(live, step=1)
    save(ckpt, 2, {"x": torch.full((1,), 20.0)})
    assert ckpt.latest() == 2
    assert ckpt.steps() == [1, 2]
    assert ckpt.restore(live) == 2
    assert live["x"].item() == 20.0
    assert ckpt.restore(live, step=2) == 2
    assert live["x"].item() == 20.0
    assert ckpt.restore(live, step=3) == 3
    assert live["x"].item() == 3.0


def test_another_process_goes_on_where_the_last_one_was(run: Path) -> None:
    with df.Checkpointer(run) as first:
        save(first, 1, {"x": torch.ones(1)})
    with df.Checkpointer(run) as second:
        assert second.restore({"x": torch.zeros(1)}) == 1
        assert second.last_restore is not None
        save(second, 2, {"x": torch.ones(1)})
        assert second.steps() == [1, 2]


def test_keep_last_leaves_the_newest(run: Path) -> None:
    with df.Checkpointer(run, keep=df.keep(last=2, every=4, best=("loss", "min"))) as ckpt:
        for step in range(1, 11):
            save(ckpt, step, {"x": step}, metrics={"loss": abs(step - 3)})
        ckpt.wait()
        assert ckpt.steps() == [3, 4, 8, 9, 10]


def test_a_branch_starts_from_its_parents_step(tmp_path: Path) -> None:
    with df.Checkpointer(tmp_path / "a") as parent:
        for step in (4, 5, 6):
            save(parent, step, {"x": step})
    with df.Checkpointer(tmp_path / "b", parent=(tmp_path / "a", 5)) as branch:
        state = {"x": 0}
        assert branch.restore(state) == 5
        assert state == {"x": 5}
        save(branch, 6, {"x": 60})
        assert branch.steps() == [6]
    with df.Checkpointer(tmp_path / "b", parent=(tmp_path / "a", 5)) as branch:
        assert branch.restore(state) == 6
        assert state == {"x": 60}
    branch = df.Checkpointer(tmp_path / "c", parent=(tmp_path / "a", 7))
    with pytest.raises(df.CheckpointError, match="no checkpoint of step 7"):
        branch.restore(state)
    branch.close()


def test_a_bad_commit_record_is_passed_over_and_named(run: Path) -> None:
    with df.Checkpointer(run) as ckpt:
        save(ckpt, 1, {"x": 1})
        save(ckpt, 2, {"x": 2})
        manifest = next(run.glob("step-000000000002-*/manifest.json"))
        manifest.write_text(manifest.read_text().replace("committed", "commuted!"))
        state = {"x": 0}
        assert ckpt.restore(state) == 1
        assert ckpt.last_restore is not None
        ((step, reason),) = ckpt.last_restore.fell_back_from
        assert step == 2
        assert "manifest.json" in reason
        assert ckpt.steps() == [1]
        assert ckpt.latest() == 1
        with pytest.raises(df.CorruptError, match=r"manifest\.json"):
            ckpt.restore(state, step=2)


def test_skip_when_busy_leaves_saves_out(run: Path) -> None:
    state = {"x": torch.randn(1 << 22)}
    with df.Checkpointer(run, on_busy="skip") as ckpt:
        handles = [ckpt.save(step, state) for step in range(1, 30)]
        ckpt.wait()
        kept = [handle.step for handle in handles if handle is not None]
        assert handles[0] is not None
        assert None in handles
        assert ckpt.steps() == kept
        assert ckpt.failed_saves == 0


def test_closing_waits_and_then_refuses(run: Path) -> None:
    ckpt = df.Checkpointer(run)
    handle = ckpt.save(1, {"x": torch.randn(1 << 20)})
    ckpt.close()
    ckpt.close()
    assert handle is not None
    assert handle.durable.done()
    assert ckpt.steps() == [1]
    with pytest.raises(df.CheckpointError, match="closed"):
        ckpt.save(2, {"x": 1})
    with pytest.raises(df.CheckpointError, match="closed"):
        ckpt.restore({"x": 1})


def test_a_save_of_another_environment_warns_once(
    ckpt: df.Checkpointer, caplog: pytest.LogCaptureFixture
) -> None:
    state = {"x": torch.ones(1)}
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        save(ckpt, 1, state)
    finally:
        torch.set_num_threads(threads)
    with caplog.at_level(logging.WARNING, "deepfreeze"):
        ckpt.restore(state)
    (record,) = caplog.records
    assert "bit-identical" in record.getMessage()
    assert f"num_threads {threads + 1} -> {threads}" in record.getMessage()
    caplog.clear()
    save(ckpt, 2, state)
    ckpt.restore(state)
    assert not caplog.records


def test_attach_is_accepted_and_checked(ckpt: df.Checkpointer) -> None:
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters())
    ckpt.attach(optimizer)
    ckpt.attach(model)
    ckpt.detach(model)
    ckpt.detach()
    for wrong in (3, torch.nn.Linear, "model"):
        with pytest.raises(TypeError, match="attach"):
            ckpt.attach(wrong)


def test_verify_and_verified(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"x": torch.randn(1000)})
    assert ckpt.verify() == []
    live = {"x": torch.zeros(1000)}
    path = data_file(ckpt.path, 1)
    flip(path, data_start(path) + 100)
    (fault,) = ckpt.verify(1)
    assert fault.tensors == ["x"]
    assert ckpt.restore(live, verify=False) == 1
    assert ckpt.last_restore is not None
    assert not ckpt.last_restore.verified


class Broken:
    """A native engine whose saves fail."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def discard_capture(self) -> None:
        pass

    def save(self, *_: Any, **__: Any) -> None:
        raise self.error

    def wait(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_a_failed_save_is_counted_logged_and_in_its_handle(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ckpt = df.Checkpointer(run)
    ckpt._engine = Broken(df.NoSpaceError("write x: disk full"))  # type: ignore[assignment]
    for count in (1, 2):
        handle = ckpt.save(count, {"a": 1})
        assert handle is not None
        with pytest.raises(df.NoSpaceError, match="disk full"):
            handle.wait()
        assert handle.status().error is handle.durable.exception()
        assert ckpt.failed_saves == count
    assert "save of step 1 failed (no_space): write x: disk full" in caplog.text


def test_strict_saves_raise_from_the_next_call(run: Path) -> None:
    ckpt = df.Checkpointer(run, strict_saves=True)
    good = ckpt._engine
    ckpt._engine = Broken(df.NoSpaceError("disk full"))  # type: ignore[assignment]
    assert ckpt.save(1, {"a": 1}) is not None
    ckpt._engine = good
    with pytest.raises(df.NoSpaceError):
        ckpt.step(2, {"a": 1})
    save(ckpt, 2, {"a": 1})
    assert ckpt.failed_saves == 1
    ckpt.close()


def test_a_handle_works_from_other_threads(ckpt: df.Checkpointer) -> None:
    handle = ckpt.save(1, {"x": torch.randn(1 << 22)})
    assert handle is not None
    results: list[int] = []
    threads = [
        threading.Thread(target=lambda: results.append(handle.durable.result(60))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [1] * 4


def test_python_runs_on_while_a_save_is_waited_for(ckpt: df.Checkpointer) -> None:
    ticks = 0
    stop = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not stop.is_set():
            ticks += 1
            time.sleep(0)

    thread = threading.Thread(target=tick)
    thread.start()
    for step in range(1, 4):
        save(ckpt, step, {"x": torch.randn(1 << 22)})
    stop.set()
    thread.join()
    assert ticks > 3


def test_the_package_imports_no_framework() -> None:
    import subprocess
    import sys

    code = "import sys, deepfreeze; print([m for m in ('torch', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_format_version_is_known() -> None:
    assert _core.FORMAT_VERSION == 2


def test_a_skipped_save_does_not_start_the_clock_anew(run: Path) -> None:
    class Busy(Broken):
        def discard_capture(self) -> None:
            pass

        def save(self, *_: Any, **__: Any) -> None:
            return None

    ckpt = df.Checkpointer(run, every=df.every(seconds=1000), on_busy="skip")
    ckpt._policy._last -= 2000
    ckpt._engine = Busy(ValueError())  # type: ignore[assignment]
    assert ckpt.step(1, {"a": 1}) is None
    assert ckpt._policy.due(2)
