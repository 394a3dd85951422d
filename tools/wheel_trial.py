"""Runs in the bare root of tools/check_wheel.py: installs the wheel, trains, tells what it saw.

    python3 wheel_trial.py VENV PACKAGES PROGRAM REQUIREMENT...

PROGRAM is a training of 10_001 steps that saves into runs/first and prints each step. It is run,
killed after some steps, and resumed; the end must be that of a run that nobody disturbed. The
last line printed is JSON. Nothing but the standard library is imported here.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

STEPS = "10_001"
KILLED_AFTER = 20
COMPILERS = ("cc", "gcc", "g++", "c++", "clang", "ld", "as")
IMPORT = "import time; t = time.perf_counter(); import deepfreeze; print(time.perf_counter() - t)"
REFUSED = """
import deepfreeze as df
try:
    df.Checkpointer("/proc/no/run")
except df.CheckpointError:
    print("refused")
"""


def output(*command: str | Path, folder: Path | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in command], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"`{' '.join(map(str, command))}` failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def commits(folder: Path) -> bool:
    return any(folder.glob("runs/first/step-*/manifest.json"))


def killed(python: Path, program: Path) -> tuple[int, float]:
    """The last step that it printed, and the time at which its first checkpoint was there."""
    command = [str(python), "-u", program.name]
    folder = program.parent
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as training:
        assert training.stdout
        while not commits(folder) and training.poll() is None:
            time.sleep(0.001)
        first = time.monotonic()
        printed = [line for line, _ in zip(training.stdout, range(KILLED_AFTER), strict=False)]
        training.kill()
        printed += training.stdout.readlines()
    if not printed:
        raise SystemExit(f"{program} ended before it had printed a step (see above)")
    return int(printed[-1]), first


def trained(python: Path, program: Path, text: str, end: int) -> list[str]:
    """Its output when it runs up to a step: the steps of this process, then the digest."""
    program.parent.mkdir(exist_ok=True)
    program.write_text(text.replace(STEPS, str(end)))
    return output(python, program.name, folder=program.parent).split()


def install(venv: Path, packages: Path, requirements: list[str]) -> float:
    """The seconds that pip takes, with all packages on this disk."""
    start = time.monotonic()
    pip = (venv / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-index")
    output(*pip, "--find-links", packages, *requirements)
    return time.monotonic() - start


def resumes(python: Path, text: str, last: int) -> dict[str, object]:
    """Whether the killed run goes on, and ends as a run does that was never killed."""
    again = trained(python, Path("killed/first.py"), text, last + 3)
    alone = trained(python, Path("alone/first.py"), text, last + 3)
    return {
        "resumed_at": int(again[0]),
        "last_step": int(again[-2]),
        "goes_on": last - 1 <= int(again[0]) <= last + 2,
        "same_bits": again[-1] == alone[-1] and len(alone) == last + 3,
    }


def main(arguments: list[str]) -> int:
    venv, packages, program = (Path(each).absolute() for each in arguments[:3])
    text = program.read_text()
    found = [name for name in COMPILERS if shutil.which(name)]
    output(sys.executable, "-m", "venv", venv)
    python, native = venv / "bin" / "python", venv / "bin" / "deepfreeze"
    begin = time.monotonic()
    seen: dict[str, object] = {"compilers": found, "python": sys.version.split()[0]}
    seen["pip_seconds"] = install(venv, packages, arguments[3:])
    killed_program = Path("killed/first.py")
    killed_program.parent.mkdir()
    killed_program.write_text(text)
    last, first = killed(python, killed_program)
    seen.update(killed_at=last, first_checkpoint_seconds=first - begin)
    seen.update(resumes(python, text, last))
    seen["imports"] = min(float(output(python, "-c", IMPORT)) for _ in range(7))
    seen["native"] = native.read_bytes()[:4] == b"\x7fELF"
    seen["ls"] = output(native, "ls", "killed/runs/first")
    seen["verify"] = output(native, "verify", "killed/runs/first")
    seen["module_ls"] = output(python, "-m", "deepfreeze", "ls", "killed/runs/first")
    seen["error"] = output(python, "-c", REFUSED).strip()
    print(json.dumps(seen))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
