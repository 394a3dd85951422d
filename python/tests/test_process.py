"""Signals, forks and the end of the interpreter."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from testkit import save

import deepfreeze as df
from tests.support import warm_python


def python(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return warm_python.run(command, capture_output=True, timeout=300)


def steps_of(run: Path) -> list[int]:
    with df.Checkpointer(run) as ckpt:
        for step in ckpt.steps():
            assert ckpt.verify(step) == []
        return ckpt.steps()


@pytest.mark.parametrize(
    ("end", "code"),
    [("", 0), ("raise RuntimeError('stop')", 1), ("sys.exit(3)", 3), ("del ckpt, handle", 0)],
)
def test_the_end_of_the_program_drains_what_is_in_flight(run: Path, end: str, code: int) -> None:
    done = python(
        """
        import sys, torch, deepfreeze as df
        ckpt = df.Checkpointer(sys.argv[1])
        handle = ckpt.save(1, {"x": torch.randn(1 << 23)})
        """
        + "\n        "
        + end,
        run,
    )
    assert done.returncode == code, done.stderr
    assert steps_of(run) == [1]


def test_many_ends_during_a_save_leave_no_crash(tmp_path: Path) -> None:
    for attempt in range(3):
        done = python(
            """
            import sys, torch, deepfreeze as df
            a = df.Checkpointer(sys.argv[1] + "a", on_busy="skip")
            b = df.Checkpointer(sys.argv[1] + "b")
            for step in range(1, 4):
                a.save(step, {"x": torch.randn(1 << 20)})
                b.save(step, {"x": torch.randn(1 << 20)})
            """,
            tmp_path / str(attempt),
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert steps_of(tmp_path / f"{attempt}b") == [1, 2, 3]


SIGTERM_PROGRAM = """
import os, signal, sys, torch, deepfreeze as df
if sys.argv[2] == "chained":
    signal.signal(signal.SIGTERM, lambda *_: (print("old handler", flush=True), sys.exit(7)))
if sys.argv[2] == "ignored":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
ckpt = df.Checkpointer(sys.argv[1])
df.finish_on_sigterm(ckpt)
handle = ckpt.save(1, {"x": torch.randn(1 << 23)})
os.kill(os.getpid(), signal.SIGTERM)
print("still here", handle.durable.done(), flush=True)
"""


@pytest.mark.parametrize(
    ("before", "code", "output"),
    [
        ("default", -signal.SIGTERM, ""),
        ("chained", 7, "old handler\n"),
        ("ignored", 0, "still here True\n"),
    ],
)
def test_sigterm_finishes_the_save_then_does_as_before(
    run: Path, before: str, code: int, output: str
) -> None:
    done = python(SIGTERM_PROGRAM, run, before)
    assert (done.returncode, done.stdout) == (code, output), done.stderr
    assert steps_of(run) == [1]


def test_the_first_process_of_a_container_ends_though_the_kernel_drops_the_signal(
    run: Path,
) -> None:
    code = """
import os, signal, sys, torch, deepfreeze as df
ckpt = df.Checkpointer(sys.argv[1])
df.finish_on_sigterm(ckpt)
ckpt.save(1, {"x": torch.randn(1 << 20)})
os.kill = lambda pid, number: None  # as the kernel, for process 1
try:
    signal.raise_signal(signal.SIGTERM)
finally:
    print("in order", flush=True)
print("still here", flush=True)
"""
    done = python(code, run)
    assert (done.returncode, done.stdout) == (128 + signal.SIGTERM, "in order\n"), done.stderr
    assert steps_of(run) == [1]


def test_a_forked_child_is_refused_and_harmless(run: Path) -> None:
    ckpt = df.Checkpointer(run)
    handle = ckpt.save(1, {"x": torch.randn(1 << 22)})
    assert handle is not None
    child = os.fork()
    if child == 0:
        refused = 0
        for call in (
            lambda: ckpt.save(2, {"x": 1}),
            lambda: ckpt.restore({"x": 1}),
            ckpt.wait,
            handle.wait,
            ckpt.steps,
        ):
            try:
                call()
            except df.CheckpointError as error:
                refused += error.code == "unsupported"
        ckpt.close()
        del ckpt
        os._exit(refused)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 5
    handle.wait(timeout=60)
    save(ckpt, 2, {"x": 1})
    ckpt.close()
    assert steps_of(run) == [1, 2]


def test_a_forked_child_that_exits_normally(run: Path) -> None:
    done = python(
        """
        import os, sys, torch, deepfreeze as df
        ckpt = df.Checkpointer(sys.argv[1])
        handle = ckpt.save(1, {"x": torch.randn(1 << 22)})
        if os.fork() == 0:
            sys.exit(0)
        _, status = os.wait()
        handle.wait()
        print(os.waitstatus_to_exitcode(status))
        """,
        run,
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
    assert steps_of(run) == [1]


def test_a_killed_process_leaves_whole_steps(run: Path) -> None:
    done = python(
        """
        import os, signal, sys, torch, deepfreeze as df
        ckpt = df.Checkpointer(sys.argv[1])
        ckpt.save(1, {"x": torch.full((1 << 22,), 1.0)}).wait()
        ckpt.save(2, {"x": torch.full((1 << 22,), 2.0)})
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        run,
    )
    assert done.returncode == -signal.SIGKILL
    with df.Checkpointer(run) as ckpt:
        live = {"x": torch.zeros(1 << 22)}
        step = ckpt.restore(live)
        assert step in (1, 2)
        assert (live["x"] == step).all()
        save(ckpt, 3, live)


def test_sigterm_during_save_itself_waits_for_it(run: Path) -> None:
    done = python(
        """
        import os, signal, sys, torch, deepfreeze as df
        ckpt = df.Checkpointer(sys.argv[1])
        df.finish_on_sigterm(ckpt)

        class Killer:
            def state_dict(self):
                os.kill(os.getpid(), signal.SIGTERM)
                return {}

            def load_state_dict(self, state):
                pass

        ckpt.save(1, {"x": torch.randn(1 << 23), "k": Killer()})
        print("not reached")
        """,
        run,
    )
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, ""), done.stderr
    assert steps_of(run) == [1]


def test_a_save_that_never_ends_is_given_up_after_the_deadline(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deepfreeze.saving import handle as handle_module

    class Stuck:
        def wait(self, level: str, timeout: float) -> None:
            raise TimeoutError

    class Ended:
        def is_alive(self) -> bool:
            return False

    monkeypatch.setattr(handle_module.threading, "main_thread", Ended)
    deadline = handle_module.ExitDeadline(seconds_max=0.0)
    handle = df.SaveHandle(4, Stuck())  # type: ignore[arg-type]
    with pytest.raises(TimeoutError, match="step 4 was not durable"):
        handle.complete(deadline)
