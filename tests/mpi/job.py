"""Programs built against the installed library, and jobs of them under Open MPI's mpirun."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RELEASE = ROOT / "build/release"
SECONDS_MAX = 120.0  # of a job that takes a few; beyond it, it hangs
OPTIONS = (
    "--oversubscribe",
    "--allow-run-as-root",
    *("--bind-to", "none"),  # the engine's threads need cores too
    *("--mca", "btl", "self,vader"),  # one machine: no network is looked for
    *("--mca", "btl_vader_single_copy_mechanism", "none"),  # containers forbid it
)


def lacking() -> str:
    """The things that this machine lacks; empty if it has all."""
    programs = ("mpirun", "mpicxx", "cmake", "ninja")
    if missing := [each for each in programs if shutil.which(each) is None]:
        return f"not installed: {', '.join(missing)}"
    said = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=False)
    return "" if "Open MPI" in said.stdout else "mpirun is not Open MPI's, whose options are used"


def _call(*command: str | Path) -> None:
    done = subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}"


def install(prefix: Path) -> None:
    """Installs the build of the release tree for C++ programs."""
    _call("cmake", "--install", RELEASE, "--prefix", prefix, "--component", "development")


def build(source: Path, folder: Path, prefix: Path) -> None:
    """A project of its own, which finds the library by find_package alone."""
    launcher = shutil.which("ccache")
    _call(
        *("cmake", "-S", source, "-B", folder, "-G", "Ninja"),
        *(f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_CXX_FLAGS=-O1"),
        *([f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}"] if launcher else []),
    )
    _call("cmake", "--build", folder)


def _processes_of(session: int) -> Iterator[int]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if fields[0] != "Z" and int(fields[3]) == session:
            yield int(stat.parent.name)


class Job:
    """Ranks of a program under mpirun, in a session of their own; killed at the end of `with`."""

    def __init__(self, ranks: int, *command: str | Path) -> None:
        # mpirun's sockets and shared memory: it can't take them away when it is killed.
        self._place = tempfile.mkdtemp(prefix="df-mpi-")
        backing = ("--mca", "btl_vader_backing_directory", self._place)
        self._process = subprocess.Popen(
            ["mpirun", *OPTIONS, *backing, "-n", str(ranks), *command],
            env={**os.environ, "TMPDIR": self._place}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        self.lines: list[str] = []
        self._too_late = threading.Timer(SECONDS_MAX, self.kill)
        self._too_late.start()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self._too_late.cancel()
        self.kill()
        self._process.wait()
        shutil.rmtree(self._place, ignore_errors=True)

    def kill(self) -> None:
        """SIGKILL for mpirun and every rank: they are not in one process group."""
        while found := list(_processes_of(self._process.pid)):
            for process in found:
                with contextlib.suppress(ProcessLookupError):  # it ended by itself
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.001)

    def read_until(self, word: str) -> str:
        """The text after this first word of a line; all lines so far are in `lines`."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))
            first, _, rest = self.lines[-1].partition(" ")
            if first == word:
                return rest
        raise AssertionError(f"the job ended without {word!r}: {self.lines}")

    def read_to_end(self) -> int:
        """Its exit status."""
        assert self._process.stdout is not None
        self.lines += [line.rstrip("\n") for line in self._process.stdout]
        return self._process.wait()
