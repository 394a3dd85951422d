"""A program that is forked from a server behaves as one that is executed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from . import warm_python

MODULES = ("fractions",)
SECONDS = 60.0  # for waits that must not hang
ABOUT_ITSELF = """
import json, os, sys, random
print(json.dumps({
    "words": sys.argv, "path": sys.path[0], "name": __name__, "directory": os.getcwd(),
    "variable": os.environ.get("DEEPFREEZE_FAIL"), "known": os.environ.get("TMPDIR"),
    "parent": os.getppid(), "group": os.getpgid(0), "session": os.getsid(0),
    "descriptors": sorted(os.listdir("/proc/self/fd"))[:3], "ignored": sys.stdin.read(),
    "drawn": random.random(),
}))
print("told", file=sys.stderr)
"""


@pytest.fixture(params=["forked", "executed"])
def call(request: pytest.FixtureRequest) -> Any:
    return forked if request.param == "forked" else executed


def forked(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    return warm_python.run(command, MODULES, **options)


def executed(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, text=True, check=False, **options)


def python(*words: str) -> list[str]:
    return [sys.executable, *words]


def test_it_finds_what_it_was_given(call: Any, tmp_path: Path) -> None:
    (tmp_path / "input").write_text("read")
    environment = {**os.environ, "DEEPFREEZE_FAIL": "x=kill"}
    environment.pop("TMPDIR", None)
    with (tmp_path / "input").open() as stdin:
        done = call(
            python("-c", ABOUT_ITSELF, "a", "b"),
            cwd=tmp_path, env=environment, stdin=stdin, capture_output=True, timeout=SECONDS,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "told\n")
    found = json.loads(done.stdout)
    assert found.pop("drawn") != json.loads(call(
        python("-c", ABOUT_ITSELF), stdin=subprocess.DEVNULL, capture_output=True
    ).stdout)["drawn"]  # fmt: skip
    assert found == {
        "words": ["-c", "a", "b"], "path": "", "name": "__main__", "directory": str(tmp_path),
        "variable": "x=kill", "known": None,
        "parent": os.getpid(), "group": os.getpgid(0), "session": os.getsid(0),
        "descriptors": ["0", "1", "2"], "ignored": "read",
    }  # fmt: skip


def test_a_module_is_found_from_its_directory(call: Any, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("import sys; print(__name__, sys.argv, sys.path[0])")
    done = call(python("-m", "own", "a"), cwd=tmp_path, stdout=subprocess.PIPE, timeout=SECONDS)
    words = f"{[str(tmp_path / 'own.py'), 'a']}"
    assert done.stdout == f"__main__ {words} {tmp_path}\n"


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("pass", 0),
        ("sys.exit(7)", 7),
        ("raise RuntimeError('stop')", 1),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        (
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "os.kill(os.getpid(), signal.SIGINT)",
            -signal.SIGINT,
        ),
        ("os.abort()", -signal.SIGABRT),
        ("os._exit(3)", 3),
    ],
)
def test_its_end_is_that_of_an_interpreter(call: Any, end: str, code: int) -> None:
    """Objects of the program live until functions of atexit have run; output is flushed."""
    program = (
        f"import atexit, os, signal, sys\natexit.register(lambda: print(kept))\nkept = 5\n{end}"
    )
    done = call(python("-c", program), capture_output=True, timeout=SECONDS)
    assert done.returncode == code, done.stderr
    assert done.stdout == ("5\n" if code in (0, 1, 7, -signal.SIGINT) else "")
    assert ("RuntimeError: stop" in done.stderr) == (code == 1)


def test_its_group_is_killed_and_it_is_waited_for(call: Any) -> None:
    program = "import os, time\nos.fork()\nos.write(1, b'1\\n')\ntime.sleep(600)"
    start = subprocess.Popen[str] if call is executed else warm_python.Program
    options = {} if call is executed else {"modules": MODULES, "serves": False}
    options |= {"text": True, "stdout": subprocess.PIPE, "start_new_session": True}
    with start(python("-c", program), **options) as process:
        try:
            assert [process.stdout.readline(), process.stdout.readline()] == ["1\n", "1\n"]
            assert os.getpgid(process.pid) == os.getsid(process.pid) == process.pid
            assert process.poll() is None
        finally:
            os.killpg(process.pid, signal.SIGKILL)
        assert process.wait(SECONDS) == -signal.SIGKILL
        assert process.stdout.read() == ""  # the child has died, too


def test_a_program_past_its_time_limit_is_killed(call: Any) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        call(python("-c", "import time; time.sleep(600)"), timeout=0.2)


def test_a_program_starts_programs_of_its_own() -> None:
    inner = "import os, sys; print('fractions' in sys.modules, os.getppid())"
    outer = f"""
import os, sys
from tests.support import warm_python
print(os.getpid(), flush=True)
warm_python.run([sys.executable, "-c", {inner!r}], {MODULES}, check=True)
"""
    done = forked(
        python("-c", outer), cwd=warm_python.ROOT, serves=True, stdout=subprocess.PIPE, check=True
    )
    number, found = done.stdout.splitlines()
    assert found == f"True {number}"


def test_variables_that_an_interpreter_reads_once_count(call: Any) -> None:
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        program = "import sys; print(hash('x') == int(sys.argv[1]))"
        own = executed(python("-c", "print(hash('x'))"), env=environment, stdout=-1).stdout
        done = call(python("-c", program, own), env=environment, stdout=subprocess.PIPE)
        assert done.stdout == "True\n"


def test_a_program_sees_the_mounts_of_its_starter(tmp_path: Path) -> None:
    outer = f"""
import os, subprocess, sys
from lab.faults.disk import MissingError, keep_mounts_to_ourselves
from tests.support import warm_python
command = [sys.executable, "-c", "import os; print(os.path.ismount({str(tmp_path)!r}))"]
def call(): return warm_python.run(command, {MODULES}, stdout=subprocess.PIPE).stdout.strip()
before = call()
try:
    keep_mounts_to_ourselves()
except MissingError as error:
    print(error)
    sys.exit(77)
subprocess.run(["mount", "-t", "tmpfs", "none", {str(tmp_path)!r}], check=True)
print(before, call())
"""
    done = executed(python("-c", outer), cwd=warm_python.ROOT, stdout=subprocess.PIPE)
    if done.returncode == 77:
        pytest.skip(f"LEFT OUT: {done.stdout.splitlines()[-1]}")
    assert done.stdout == "False True\n"


def test_orphans_of_others_are_not_kept() -> None:
    """Only for the moment of a start is this process the parent of those that lose theirs."""
    program = "import os, time\nif os.fork() == 0:\n    time.sleep(0.5)\n    print(os.getppid())"
    done = forked(python("-c", program), stdout=subprocess.PIPE, check=True)
    assert int(done.stdout) != os.getpid()


def test_a_directory_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(warm_python.WarmError, match="No such file"):
        forked(python("-c", "pass"), cwd=tmp_path / "none")
