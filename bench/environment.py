#!/usr/bin/env python3
"""Makes the environments of the benchmarks; a second call only compares hashes.

build/bench-venv: what .venv has (`make setup`), and peers for torch.
With --all also build/bench-frameworks-venv: JAX, TensorFlow and Chainer, without torch; and
DeepSpeed's extension, compiled in build/torch-extensions.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from stamp import BUILD, VENV, Stamp, digest  # noqa: E402 (found by the line above)

WHERE_PACKAGES_ARE = "import sysconfig; print(sysconfig.get_path('purelib'))"
BUILD_TOOLS = ("setuptools", "wheel")  # before what is built from source with them
LOAD_ASYNC_IO = "from deepspeed.ops.op_builder import AsyncIOBuilder; AsyncIOBuilder().load()"
COMPILE_SECONDS_MAX = 1200


@dataclass(frozen=True)
class Environment:
    venv: Path
    requirements: Path
    shared: str = ""  # site-packages that it also looks into

    @property
    def python(self) -> str:
        return str(self.venv / "bin" / "python")

    @property
    def name(self) -> str:
        return str(self.venv.relative_to(ROOT))


def stop(text: str) -> int:
    print(f"bench: {text}", file=sys.stderr, flush=True)
    return 1


def packages_of(venv: Path) -> str:
    """The path of its site-packages; empty where it does not run."""
    command = [str(venv / "bin" / "python"), "-c", WHERE_PACKAGES_ARE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def make(wanted: Environment) -> int:
    """A new environment that also finds what is in `shared`."""
    shutil.rmtree(wanted.venv, ignore_errors=True)
    command = [str(VENV / "bin" / "python"), "-m", "venv", str(wanted.venv)]
    if subprocess.run(command, check=False).returncode != 0:
        return stop(f"`.venv/bin/python -m venv {wanted.name}` failed (see above)")
    if wanted.shared:
        (Path(packages_of(wanted.venv)) / "shared.pth").write_text(wanted.shared + "\n")
    return 0


def install(wanted: Environment) -> int:
    lines = wanted.requirements.read_text().splitlines()
    tools = [line for line in lines if line.startswith(BUILD_TOOLS)]
    return pip(wanted, tools) or pip(wanted, ["-r", str(wanted.requirements)])


def pip(wanted: Environment, what: list[str]) -> int:
    command = [wanted.python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    command += ["--progress-bar=off", "--no-deps", "--no-build-isolation", *what]
    done = subprocess.run(command, env=variables(wanted), stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        return stop(f"pip could not install {wanted.requirements.name} (see above)")
    return 0


def variables(wanted: Environment) -> dict[str, str]:
    """Nothing of DeepSpeed is compiled by pip; what is later, is in build/."""
    path = os.pathsep.join((str(wanted.venv / "bin"), os.environ.get("PATH", "")))
    extensions = str(BUILD / "torch-extensions")
    return {**os.environ, "PATH": path, "DS_BUILD_OPS": "0", "TORCH_EXTENSIONS_DIR": extensions}


def compile_async_io(wanted: Environment) -> None:
    """Minutes, once. Without it FastPersist is shown as failed, the others run."""
    content = digest([wanted.requirements], wanted.shared)
    stamp = Stamp(BUILD / "torch-extensions" / ".stamp", content)
    if stamp.is_current():
        return
    print("bench: compiling DeepSpeed's async_io, which takes minutes", flush=True)
    command = [wanted.python, "-c", LOAD_ASYNC_IO]
    limits = {"MAX_JOBS": os.environ.get("JOBS", "1")}
    try:
        done = subprocess.run(
            command,
            env=variables(wanted) | limits,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMPILE_SECONDS_MAX,
        )
        said = done.stderr.strip().splitlines()[-1:] if done.returncode != 0 else []
    except subprocess.TimeoutExpired:
        said = [f"took more than {COMPILE_SECONDS_MAX} s"]
    if said:
        stop(f"no FastPersist: async_io did not compile (apt install libaio-dev?): {said[0]}")
        return
    stamp.write()


def ready(wanted: Environment) -> int:
    """0 where it is there, made now or earlier."""
    content = digest([wanted.requirements, Path(__file__)], wanted.shared)
    stamp = Stamp(wanted.venv / ".stamp", content)
    if stamp.is_current():
        return 0
    print(f"bench: making {wanted.name}", flush=True)
    status = make(wanted) or install(wanted)
    if status == 0:
        stamp.write()
    return status


def main(arguments: list[str]) -> int:
    shared = packages_of(VENV)
    if not shared:
        return stop("there is no .venv that runs; `make setup` makes it")
    tools = ROOT / "tools"
    torch = Environment(BUILD / "bench-venv", tools / "requirements-bench.txt", shared)
    status = ready(torch)
    if status == 0 and "--all" in arguments:
        compile_async_io(torch)
        venv = BUILD / "bench-frameworks-venv"
        status = ready(Environment(venv, tools / "requirements-bench-frameworks.txt"))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
