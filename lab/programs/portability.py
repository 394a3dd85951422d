"""Saves the same network in each framework; reads each file in every other, and compares outputs.

By itself: with what the reading framework and public readers of the container have. By
DeepFreeze: `deepfreeze import` with a map of names and dimensions, and restore.
"""

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

import deepfreeze as df
from deepfreeze.__main__ import main as deepfreeze_command
from lab.networks.portable import (
    GENES,
    NETWORKS,
    ROWS,
    Array,
    Flax,
    Network,
    Torch,
    carried_out,
    steps_between,
    tolerance,
)
from lab.programs.answer import carry_out
from lab.programs.portability_files import CONTAINERS, Container, own_name

EQUAL, OTHER = "equal outputs", "other outputs"
ARRAYS, NO_READER = "arrays only", "no reader"
BY_ITSELF, BY_DEEPFREEZE = "by itself", "by deepfreeze import"
OURS = "df"  # how the names of DeepFreeze's own begin


class Portability:
    def __init__(self, seed: int, directory: Path, exporter: str) -> None:
        generator = np.random.default_rng(seed)
        self.networks = {one.framework: one for one in (make() for make in NETWORKS)}
        self.x = generator.standard_normal((ROWS, 1, GENES), np.float32)
        self.directory = directory
        self.exporter = exporter
        self.source = Torch()
        self.source.fill({
            name: generator.standard_normal(one.shape, np.float32) / np.float32(one[0].size**0.5)
            for name, one in self.source.arrays().items()
        })  # fmt: skip
        self.wanted = self.source.forward(self.x)
        self.tolerance = tolerance(self.source, self.x)
        self.check_power()

    def check_power(self) -> None:
        """A map that forgets how features are ordered must not pass."""
        network = Flax()
        network.fill_from(self.source, self.source.arrays())
        wrong = network.arrays()
        weight = self.source.arrays()["dense1.weight"]
        wrong["dense1.kernel"] = carried_out(weight, [["transpose", 1, 0]])
        network.fill(wrong)
        if self.difference(network) <= self.tolerance:
            raise RuntimeError("the comparison would pass a wrong map")

    def difference(self, network: Network) -> float:
        return float(np.abs(network.forward(self.x) - self.wanted).max())

    def compared(self, network: Network) -> dict[str, Any]:
        difference = self.difference(network)
        about = {"difference": difference, "tolerance": self.tolerance,
                 "greatest_output": float(np.abs(self.wanted).max())}  # fmt: skip
        return {"verdict": EQUAL if difference <= self.tolerance else OTHER, "about": about}

    def results(self) -> Iterator[dict[str, Any]]:
        for container in CONTAINERS:
            path = self.directory / container.name / container.filename
            path.parent.mkdir()
            writer = self.networks[container.framework]
            writer.fill_from(self.source, self.source.arrays())
            container.save(writer, path)
            for reader in self.networks.values():
                for route, read in self.routes(container, reader).items():
                    yield {
                        "writer": container.name, "title": container.title,
                        "framework": container.framework, "reader": reader.framework,
                        "route": route, **attempted(read, container, path, reader),
                    }  # fmt: skip

    def routes(self, container: Container, reader: Network) -> dict[str, Any]:
        own = {BY_ITSELF: self.by_itself}
        return (
            own if container.framework == reader.framework else own | {BY_DEEPFREEZE: self.imported}
        )

    def by_itself(self, container: Container, path: Path, reader: Network) -> dict[str, Any]:
        if container.needs not in ("", reader.framework):
            return {"verdict": NO_READER, "reason": f"only {container.needs} reads it"}
        arrays, writer = container.read(path), self.networks[container.framework]
        held = writer.names().values()
        found = {writer.name(*part): arrays[container.stored(writer, *part)] for part in held}
        reader.empty()
        reader.fill_from(writer, found)
        result = self.compared(reader)
        if result["verdict"] != EQUAL or writer.framework == reader.framework:
            return result
        reason = "names and dimensions are mapped by hand; then the outputs are equal"
        return result | {"verdict": ARRAYS, "reason": reason}

    def imported(self, container: Container, path: Path, reader: Network) -> dict[str, Any]:
        writer, stored = self.networks[container.framework], container.stored
        source = path
        if container.name.startswith(OURS):
            source, stored = self.exported(path), own_name
        rules = {
            name: {"from": stored(writer, *part), "do": steps_between(writer, reader, *part)}
            for name, part in reader.names().items()
        }
        run = path.parent / f"to-{reader.framework}"
        refused = import_it(source, run, rules)
        if refused:
            return {"verdict": NO_READER, "reason": refused}
        reader.empty()
        reader.fill(restored(run, reader))
        return self.compared(reader) | {"reason": "by a map file of names and dimensions"}

    def exported(self, run: Path) -> Path:
        out = run.parent / "exported.safetensors"
        if not out.exists():
            command = [self.exporter, "export", str(run), str(out)]
            subprocess.run(command, check=True, capture_output=True)
        return out


def restored(run: Path, reader: Network) -> dict[str, Array]:
    live = reader.restorable()
    with df.Checkpointer(run) as checkpointer:
        checkpointer.restore(live)
    return {name: np.array(one) for name, one in live.items()}


def import_it(source: Path, run: Path, rules: dict[str, Any]) -> str:
    """What the command says where it refuses; empty where it was done."""
    rules_file = run.with_suffix(".json")
    rules_file.write_text(json.dumps(rules))
    said = io.StringIO()
    with redirect_stderr(said), redirect_stdout(io.StringIO()):
        code = deepfreeze_command(["import", str(source), str(run), "--map", str(rules_file)])
    return "" if code == 0 else (said.getvalue().strip().splitlines() or [f"status {code}"])[-1]


def attempted(read: Any, container: Container, path: Path, reader: Network) -> dict[str, Any]:
    """One pair's failure is not the others'."""
    try:
        found: dict[str, Any] = read(container, path, reader)
        return found
    except Exception as error:  # becomes that pair's row
        return {"error": f"{type(error).__name__}: {error}"}


def work(request: dict[str, Any]) -> list[dict[str, Any]]:
    place = Path(request["directory"])
    return list(Portability(request["seed"], place, request["exporter"]).results())


if __name__ == "__main__":
    sys.exit(carry_out(sys.argv[1:], work))
