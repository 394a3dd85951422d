#!/usr/bin/env python3
"""`make check-wheel`: installs the wheels of dist/ in bare Debian roots, and trains there.

1. A root of each suite (bare_root.py), with python3 and venv. Each trial has a fresh copy.
2. The packages that the trial installs are downloaded here, by this machine's pip: the root has no
   network.
3. wheel_trial.py in the root: README.md's ten lines, a kill, a resume, `deepfreeze ls` and more.

Torch is in the trial if the root's Python is the version of .venv's: only for that one is it
known that pip gets the build for CPUs. Another root trains with NumPy. Needs root.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import bare_root
from bare_root import RootError, in_root, run
from stamp import BUILD, ROOT, VENV

DIST = ROOT / "dist"
PINS = ROOT / "tools" / "requirements-test.txt"
SUITES = ("bookworm", "trixie")
PROJECT = "deepfreeze-checkpoint"
IMPORT_SECONDS_MAX = 0.15

SEED = "import torch\ntorch.manual_seed(1)\n"
DIGEST = "import hashlib\nprint(hashlib.sha256({}.tobytes()).hexdigest())\n"
TORCH_WEIGHTS = "model.weight.detach().numpy()"
NUMPY_PROGRAM = """\
import numpy as np
import deepfreeze as df

state = {"weights": np.zeros((1000, 10)), "rng": df.RNG()}
np.random.seed(1)
with df.Checkpointer("runs/first", keep=df.keep(last=3)) as ckpt:
    start = ckpt.restore(state) or 0
    for step in range(start + 1, 10_001):
        state["weights"] += np.random.standard_normal((1000, 10))
        ckpt.step(step, state)
        print(step)
"""


@dataclass(frozen=True)
class Trial:
    """One root and the packages that are installed in it."""

    suite: str
    root: Path
    python: str  # "3.11"
    has_torch: bool

    @property
    def packages(self) -> Path:
        return BUILD / "wheel" / f"packages-{self.python}"

    @property
    def requirements(self) -> list[str]:
        return [PROJECT, "numpy", *(["torch"] if self.has_torch else [])]


def say(text: str) -> None:
    print(f"check-wheel: {text}", flush=True)


def readme_program() -> str:
    """The ten lines, between a seed and the digest of what they have trained."""
    text = (ROOT / "README.md").read_text()
    programs: list[str] = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return SEED + programs[0] + DIGEST.format(TORCH_WEIGHTS)


def numpy_program() -> str:
    return NUMPY_PROGRAM + DIGEST.format('state["weights"]')


def trial_of(suite: str) -> Trial:
    root = bare_root.bare_root(suite)
    say_version = "import sys; print('%d.%d' % sys.version_info[:2])"
    python = in_root(root, "python3", "-c", say_version).strip()
    own = run([str(VENV / "bin" / "python"), "-c", say_version]).strip()
    return Trial(suite, root, python, python == own)


def download(trial: Trial) -> None:
    """Into a folder: the wheel and all that it needs there, as pip chooses it."""
    shutil.rmtree(trial.packages, ignore_errors=True)
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
    pip += ["--python-version", trial.python, "--constraint", str(PINS), "--find-links", str(DIST)]
    run([*pip, "--dest", str(trial.packages), *trial.requirements])


def fresh_copy(trial: Trial) -> Path:
    copy = bare_root.copy(trial.root, "trial")
    place = copy / "root"
    shutil.copytree(trial.packages, place / "packages", dirs_exist_ok=True)
    shutil.copy(ROOT / "tools" / "wheel_trial.py", place)
    (place / "first.py").write_text(readme_program() if trial.has_torch else numpy_program())
    return copy


def steps_of(listing: str) -> list[str]:
    """The first column of `deepfreeze ls`; another one has the age, which grows meanwhile."""
    return [line.split()[0] for line in listing.splitlines()[1:]]


def faults_in(seen: dict[str, object]) -> list[str]:
    """Results of the trial that are faults."""
    wanted = {"compilers": [], "goes_on": True, "same_bits": True, "native": True}
    faults = [f"{key} is {seen[key]}" for key, value in wanted.items() if seen[key] != value]
    if seen["error"] != "refused":
        faults.append(f"an error of the core came as {seen['error']}")
    listed = steps_of(str(seen["ls"]))
    if steps_of(str(seen["module_ls"])) != listed:
        faults.append(f"`python -m deepfreeze ls` lists something else: {seen['module_ls']}")
    if str(seen["last_step"]) not in listed:
        faults.append(f"`deepfreeze ls` does not list step {seen['last_step']}: {seen['ls']}")
    if float(str(seen["imports"])) > IMPORT_SECONDS_MAX:
        faults.append(f"import deepfreeze takes {seen['imports']} s")
    return faults


def tried(trial: Trial) -> list[str]:
    download(trial)
    copy = fresh_copy(trial)
    script = 'cd /root && exec python3 wheel_trial.py venv packages first.py "$@"'
    lines = in_root(copy, "sh", "-c", script, "sh", *trial.requirements)
    seen = json.loads(lines.splitlines()[-1])
    (wheel,) = trial.packages.glob("deepfreeze_checkpoint-*.whl")
    shutil.rmtree(copy)
    print(seen["ls"] + seen["verify"], end="")
    say(
        f"{trial.suite}, Python {seen['python']}, {'torch' if trial.has_torch else 'NumPy'}, "
        f"{wheel.name}: {wheel.stat().st_size / 2**20:.2f} MiB; pip {seen['pip_seconds']:.1f} s, "
        f"first checkpoint after {seen['first_checkpoint_seconds']:.1f} s; "
        f"import {seen['imports']:.3f} s; killed at step {seen['killed_at']}, "
        f"went on at {seen['resumed_at']}, same bits: {seen['same_bits']}"
    )
    return [f"{trial.suite}: {fault}" for fault in faults_in(seen)]


def check(suites: list[str]) -> list[str]:
    bare_root.require_tools()
    if not list(DIST.glob("*.whl")):
        raise RootError("there is no wheel in dist/; run `make wheel`")
    return [fault for suite in suites for fault in tried(trial_of(suite))]


def main(arguments: list[str]) -> int:
    try:
        faults = check(arguments or list(SUITES))
    except RootError as error:
        faults = [str(error)]
    for fault in faults:
        print(f"check-wheel: {fault}", file=sys.stderr, flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
