"""Flips one bit of one number within the files of a checkpoint; tells what its own reader says."""

import gc
import importlib
import shutil
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy

from lab.faults.bit_flips import CLASSES, Spot, draw
from lab.measure.files import files_in
from lab.programs import sdc_state
from lab.programs.answer import carry_out
from lab.writers.saver import StorageSaver
from lab.writers.values import Array, Values

STEP, OTHER_STEP = 1, 2  # the version that is saved, and one that no file holds
FOUND, SILENT = "found", "silent"
SAME = "the same"  # what was saved came back
NO_PLACE = "no place"  # nothing that the load reads holds these numbers as they are in memory


@dataclass(frozen=True)
class Place:
    """Where a tensor's numbers begin."""

    file: Path
    offset: int


def places_of(array: Array, contents: dict[Path, bytes]) -> Iterator[Place]:
    """All: a file may hold a copy that no load reads."""
    wanted = numpy.ascontiguousarray(array).tobytes()
    for file, data in contents.items():
        offset = data.find(wanted)
        while offset >= 0:
            yield Place(file, offset)
            offset = data.find(wanted, offset + 1)


class Specimen:
    """One writer's checkpoint, undamaged between trials."""

    def __init__(self, writer: dict[str, Any], seed: int, directory: Path) -> None:
        kind: type[StorageSaver] = getattr(
            importlib.import_module(writer["module"]), writer["kind"]
        )
        self.saver = kind(sdc_state.layout(), Values(seed))
        self.directory = directory
        self.saver.fill(STEP)
        self.saved = self.copies()
        self.saver.open(directory)
        pending = self.saver.save(directory, STEP)
        pending.captured()
        pending.committed()
        self.saver.close()
        self.contents = {file: file.read_bytes() for file in files_in(directory)}
        if self.load() != SAME:
            raise RuntimeError("an undamaged checkpoint does not give what was saved")

    def copies(self) -> dict[str, Array]:
        return {name: array.copy() for name, array in self.saver.contents().items()}

    def load(self) -> str:
        """Into a state that held other numbers."""
        self.saver.fill(OTHER_STEP)
        self.saver.restore(self.directory, STEP)
        found = self.saver.contents()
        same = all(found[name].tobytes() == one.tobytes() for name, one in self.saved.items())
        return SAME if same else SILENT

    def trial(self, spot: Spot) -> dict[str, Any]:
        about: dict[str, Any] = {"tensor": spot.tensor, "index": spot.index, "bit": spot.bit}
        for place in places_of(self.saved[spot.tensor], self.contents):
            offset = place.offset + spot.index * 4 + spot.bit // 8  # little-endian
            told = self.flipped(place.file, offset, 1 << spot.bit % 8)
            if told["outcome"] != SAME:
                return {**about, "offset": offset, **told}
        return {**about, "outcome": NO_PLACE}

    def flipped(self, file: Path, offset: int, bit: int) -> dict[str, Any]:
        damaged = bytearray(self.contents[file])
        damaged[offset] ^= bit
        file.write_bytes(damaged)
        try:
            return {"outcome": self.load()}
        except Exception as error:  # the reader has noticed, whatever it says
            return {"outcome": FOUND, "said": type(error).__name__}
        finally:
            file.write_bytes(self.contents[file])


def told(writer: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """One writer's failure is not the others'."""
    place = Path(request["directory"]) / writer["name"]
    place.mkdir()
    try:
        specimen = Specimen(writer, request["seed"], place)
        return {"name": writer["name"], "trials": trials(specimen, request["asked"])}
    except Exception as error:  # becomes that writer's rows
        return {"name": writer["name"], "error": f"{type(error).__name__}: {error}"}
    finally:
        shutil.rmtree(place, ignore_errors=True)
        gc.collect()


def trials(specimen: Specimen, asked: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """By bit class: the very places that the training of the same seeds has met."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in asked:
        sizes, bits = sdc_state.sizes(one["component"]), CLASSES[one["bits"]]
        for seed in one["seeds"]:
            (spot,) = draw(Random(seed), sizes, bits, 1)
            found.setdefault(one["bits"], []).append(
                {"seed": seed, **specimen.trial(spot)}
            )  # fmt: skip
    return found


def work(request: dict[str, Any]) -> list[dict[str, Any]]:
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")
    return [told(writer, request) for writer in request["writers"]]


if __name__ == "__main__":
    sys.exit(carry_out(sys.argv[1:], work))
