"""Chainer's npz, over a link's parameters."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy

from bench.storage import chainer_shim
from bench.storage.saver import ArraySaver, Pending
from bench.storage.values import Array


class ChainerStored(ArraySaver):
    """save_npz(compression=False)."""

    compression = False

    def build(self) -> None:
        super().build()
        chainer_shim.install()
        chainer: Any = importlib.import_module("chainer")
        self.serializers: Any = importlib.import_module("chainer.serializers")
        self.link = chainer.Link()
        with self.link.init_scope():
            for name, array in self.arrays.items():
                if array.dtype == numpy.float32:
                    setattr(self.link, name, chainer.Parameter(array))
        for name, array in self.arrays.items():
            if array.dtype != numpy.float32:
                self.link.add_persistent(name, array)

    def save(self, directory: Path, step: int) -> Pending:
        place = str(self.place(directory, step))
        self.serializers.save_npz(place, self.link, compression=self.compression)
        return Pending()

    def restore(self, directory: Path, step: int) -> None:
        self.serializers.load_npz(str(self.place(directory, step)), self.link)

    def load_one(self, directory: Path, step: int, name: str) -> Array:
        with numpy.load(self.place(directory, step)) as file:
            found: Array = file[name]
        return found


class Chainer(ChainerStored):
    """save_npz as it is by default: deflated."""

    compression = True
