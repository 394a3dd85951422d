#!/usr/bin/env python3
"""Makes the environments of the benchmarks; a second call only compares hashes.

build/bench-venv, or "peers": what .venv has (`make setup`), and peers for torch.
build/frameworks-venv, or "frameworks", which `make frameworks` tests in: what .venv has, and JAX,
TensorFlow, Keras and Chainer. Without a name the first; with --all both, and DeepSpeed's
extension, compiled in build/torch-extensions.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / "tools"
sys.path.insert(0, str(TOOLS))

import environments  # noqa: E402 (by the line above)
from stamp import BUILD, VENV, Stamp, digest  # noqa: E402

LOAD_ASYNC_IO = "from deepspeed.ops.op_builder import AsyncIOBuilder; AsyncIOBuilder().load()"
COMPILE_SECONDS_MAX = 1200
ALL = "--all"
# Nothing of DeepSpeed is compiled by pip; what is later, is in build/.
VARIABLES = {"DS_BUILD_OPS": "0", "TORCH_EXTENSIONS_DIR": str(BUILD / "torch-extensions")}


def compile_async_io(wanted: environments.Environment) -> None:
    """Minutes, once. Without it FastPersist is shown as failed, the others run."""
    content = digest([wanted.requirements], wanted.shared)
    stamp = Stamp(BUILD / "torch-extensions" / ".stamp", content)
    if stamp.is_current():
        return
    print("bench: compiling DeepSpeed's async_io, which takes minutes", flush=True)
    said = _compile(wanted)
    if said:
        environments.stop(
            f"no FastPersist: async_io did not compile (apt install libaio-dev?): {said[0]}"
        )
        return
    stamp.write()


def _compile(wanted: environments.Environment) -> list[str]:
    """What it says at its end where it fails."""
    path = os.pathsep.join((str(wanted.venv / "bin"), os.environ.get("PATH", "")))
    limits = {"PATH": path, "MAX_JOBS": os.environ.get("JOBS", "1")}
    try:
        done = subprocess.run(
            [wanted.python, "-c", LOAD_ASYNC_IO],
            env={**os.environ, **VARIABLES, **limits},
            capture_output=True,
            text=True,
            check=False,
            timeout=COMPILE_SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        return [f"took more than {COMPILE_SECONDS_MAX} s"]
    return done.stderr.strip().splitlines()[-1:] if done.returncode != 0 else []


def main(arguments: list[str]) -> int:
    shared = environments.packages_of(VENV)
    if not shared:
        return environments.stop("there is no .venv that runs; `make setup` makes it")
    wanted = {
        "peers": environments.Environment(
            BUILD / "bench-venv", TOOLS / "requirements-bench.txt", shared, VARIABLES
        ),
        "frameworks": environments.frameworks(),
    }
    names = [name for name in wanted if name in arguments]
    if ALL in arguments:
        names = list(wanted)
    status = next(
        filter(None, map(environments.ready, (wanted[name] for name in names or ["peers"]))), 0
    )
    if status == 0 and ALL in arguments:
        compile_async_io(wanted["peers"])
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
