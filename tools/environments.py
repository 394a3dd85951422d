"""Further environments beside .venv: exact requirements in a folder of build/."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from stamp import BUILD, ROOT, VENV, Stamp, digest

WHERE_PACKAGES_ARE = "import sysconfig; print(sysconfig.get_path('purelib'))"
BUILD_TOOLS = ("setuptools", "wheel")  # before packages that are built from source with them


@dataclass(frozen=True)
class Environment:
    """The inputs from which ready() makes an environment."""

    venv: Path
    requirements: Path
    shared: str = ""  # site-packages that it also looks into
    variables: Mapping[str, str] = field(default_factory=dict)  # for packages that pip builds
    maker: str = str(VENV / "bin" / "python")  # the Python that makes it

    @property
    def python(self) -> str:
        return str(self.venv / "bin" / "python")

    @property
    def name(self) -> str:
        return str(self.venv.relative_to(ROOT))


def stop(text: str) -> int:
    """Says why it ends; the exit status."""
    print(f"environments: {text}", file=sys.stderr, flush=True)
    return 1


def packages_of(venv: Path) -> str:
    """The path of its site-packages; empty if its Python does not run."""
    command = [str(venv / "bin" / "python"), "-c", WHERE_PACKAGES_ARE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def frameworks() -> Environment:
    """With JAX, TensorFlow, Keras and Chainer: of the tests, the benchmarks and the study."""
    requirements = ROOT / "tools" / "requirements-frameworks.txt"
    return Environment(BUILD / "frameworks-venv", requirements, packages_of(VENV))


def ready(wanted: Environment) -> int:
    """Makes the environment unless it exists; 0 on success.

    A second process waits for the first.
    """
    content = digest([wanted.requirements, Path(__file__)], wanted.shared)
    stamp = Stamp(wanted.venv / ".stamp", content)
    with _alone(wanted.venv):
        if stamp.is_current():
            return 0
        print(f"environments: making {wanted.name}", flush=True)
        status = _make(wanted) or _install(wanted)
        if status == 0:
            stamp.write()
        return status


@contextmanager
def _alone(venv: Path) -> Iterator[None]:
    """The lock goes with the process, however it ends."""
    venv.parent.mkdir(parents=True, exist_ok=True)
    with venv.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(wanted: Environment) -> int:
    """Makes a new environment that also finds the packages in `shared`."""
    shutil.rmtree(wanted.venv, ignore_errors=True)
    command = [wanted.maker, "-m", "venv", str(wanted.venv)]
    if subprocess.run(command, check=False).returncode != 0:
        return stop(f"`{wanted.maker} -m venv {wanted.name}` failed (see above)")
    if wanted.shared:
        (Path(packages_of(wanted.venv)) / "shared.pth").write_text(wanted.shared + "\n")
    return 0


def _install(wanted: Environment) -> int:
    lines = wanted.requirements.read_text().splitlines()
    tools = [line for line in lines if line.startswith(BUILD_TOOLS)]
    return (_pip(wanted, tools) if tools else 0) or _pip(wanted, ["-r", str(wanted.requirements)])


def _pip(wanted: Environment, what: list[str]) -> int:
    command = [wanted.python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    command += ["--progress-bar=off", "--no-compile", "--no-deps", "--no-build-isolation", *what]
    path = os.pathsep.join((str(wanted.venv / "bin"), os.environ.get("PATH", "")))
    environment = {**os.environ, "PATH": path, **wanted.variables}
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        return stop(f"pip could not install {wanted.requirements.name} (see above)")
    return 0
