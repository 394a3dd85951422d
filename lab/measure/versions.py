"""Which packages did it: their versions in the environment that a row was measured in."""

import json
import subprocess
from functools import cache

from lab.measure.program import python
from lab.measure.row import LEFT_OUT, NOT_INSTALLED, Row

DEEPFREEZE = "deepfreeze-checkpoint"
PACKAGES = {
    "pytorch": ("torch", "safetensors", "torchsnapshot", "torch-checkpointing"),
    "tensorflow": ("tensorflow-cpu", "keras", "h5py"),
    "chainer": ("chainer", "numpy", "h5py"),
    "jax": ("jax", "jaxlib", "orbax-checkpoint", "flax", "safetensors"),
}
ALL = tuple(dict.fromkeys((DEEPFREEZE, *(name for some in PACKAGES.values() for name in some))))
NOBODY = (LEFT_OUT, NOT_INSTALLED)  # the statuses of rows that no package has had a part in
SECONDS_MAX = 60.0
PROGRAM = """
import importlib.metadata, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def told(row: Row, environment: str) -> Row:
    """What a row says of packages: nothing where it has had none."""
    if row["status"] in NOBODY:
        return {}
    there = installed(environment)
    return {"versions": written({name: there[name] for name in names_of(row) if name in there})}


def names_of(row: Row) -> list[str]:
    """Of the framework that saves and of that which reads; a simulation has neither."""
    reader = str(row.get("reader") or "").partition(",")[0]
    frameworks = () if row.get("simulated") else (str(row.get("framework")), reader)
    found = [name for one in frameworks for name in PACKAGES.get(one, ())]
    return list(dict.fromkeys((DEEPFREEZE, *found)))


@cache
def installed(environment: str) -> dict[str, str]:
    """Asked of its own interpreter, once; empty where that does not answer."""
    command = [str(python(environment)), "-c", PROGRAM, *ALL]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=SECONDS_MAX
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return {}
    found: dict[str, str] = json.loads(answer.stdout)
    return found


def written(found: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in found.items())


def read(row: Row) -> dict[str, str]:
    """By package, as its index calls it; empty for rows of before they were told."""
    words = filter(None, str(row.get("versions") or "").split(", "))
    pairs = (word.rpartition(" ") for word in words)
    return {name.replace("_", "-"): version for name, _, version in pairs}
