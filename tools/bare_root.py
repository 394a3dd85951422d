"""Bare Debian roots by debootstrap, in build/roots, and commands in them. Needs root.

They come from the archive that this machine's apt uses, and have nothing that compiles.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import debian_archive
import setup
from stamp import BUILD

ROOTS = BUILD / "roots"
TOOLS = {
    "debootstrap": "debootstrap",
    "chroot": "coreutils",
    "unshare": "util-linux",
    "ip": "iproute2",
}
SEARCH_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


class RootError(Exception):
    """A root that can't be made, or a command that failed in it."""


def run(command: list[str]) -> str:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0:
        raise RootError(f"`{' '.join(command)}` failed (see above)\n{done.stdout[-2000:]}")
    return done.stdout


def require_tools() -> None:
    if os.geteuid() != 0:
        raise RootError("debootstrap and chroot need root; run it as root")
    missing = [package for name, package in TOOLS.items() if shutil.which(name) is None]
    if missing and setup.install(missing) != 0:
        raise RootError(f"needed and not there: {' '.join(missing)}")


def mirror() -> str:
    """The archive of Debian that this machine's apt uses."""
    found = sorted(each for each in debian_archive.addresses() if "security" not in each)
    if not found:
        raise RootError("apt on this machine names no archive of Debian; debootstrap needs one")
    return found[0]


def bare_root(suite: str) -> Path:
    """Made once and kept: a trial that changes it works on a copy()."""
    root = ROOTS / suite
    if (root / "usr" / "bin" / "python3").exists():
        return root
    print(f"debootstrap of {suite}", flush=True)
    half = ROOTS / f"{suite}.half"
    shutil.rmtree(half, ignore_errors=True)
    half.parent.mkdir(parents=True, exist_ok=True)
    options = ["--variant=minbase", "--include=python3,python3-venv"]
    run(["debootstrap", *options, suite, str(half), mirror()])
    return half.rename(root)


def copy(root: Path, name: str) -> Path:
    to = ROOTS / name
    shutil.rmtree(to, ignore_errors=True)
    run(["cp", "--archive", str(root), str(to)])
    return to


def in_root(root: Path, *command: str) -> str:
    """In namespaces of its own: no network but its own loopback; its mounts are gone with it."""
    kinds = {"proc": "proc", "sysfs": "sys", "devpts": "dev/pts"}
    mounts = " && ".join(f'mount -t {kind} {kind} "$0/{at}"' for kind, at in kinds.items())
    inside = f'ip link set lo up && {mounts} && exec chroot "$0" "$@"'
    apart = ["unshare", "--mount", "--net", "--fork", "--pid", "sh", "-c", inside, str(root)]
    # Nothing of this machine's environment but the search path.
    return run([*apart, "/usr/bin/env", "-i", f"PATH={SEARCH_PATH}", "HOME=/root", *command])
