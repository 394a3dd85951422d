"""The bytes that a save writes anew, how many of them had changed, and the state that comes back.

Untimed saves, one by one, after the measured ones. A file counts for the save that wrote it: one
that is linked into a later checkpoint is an inode that was there before.
"""

import gc
import struct
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lab.measure.containers import container_of
from lab.measure.files import files_in, forget
from lab.measure.loop import Workload
from lab.networks.layouts import named
from lab.writers.loop import Saver

SAVES = 4  # that are looked at: linked copies take turns, and so may the tensors that change
BLOCK_BYTES = 512  # of st_blocks
OTHER_SEED = 1  # added to the seed, for the training that a checkpoint is restored into

Identity = tuple[int, int, int]  # device, inode, and the time of writing: inodes are used again


@dataclass(frozen=True)
class Written:
    """One save."""

    changed_bytes: int  # of the tensors in which a byte has changed since the save before
    new_bytes: int  # on the disk, of the files that this save wrote
    header_bytes: int  # of these, bytes of no tensor; 0 if the files are not safetensors


class PartialSaves:
    """The examination of one segment."""

    def __init__(self, workload: Workload, seed: int) -> None:
        self.workload, self.seed = workload, seed
        self.written: list[Written] = []
        self.saved: dict[str, Tensor] = {}  # the state at the newest save

    def save_on(self, training: Any, saver: Saver, last_step: int) -> None:
        if saver.is_baseline:
            return
        self.saved = copied(training)
        for step in range(last_step + 1, last_step + SAVES + 1):
            self.written.append(self.save(training, saver, step))

    def save(self, training: Any, saver: Saver, step: int) -> Written:
        training.train_step(step, saver)
        before, self.saved = self.saved, copied(training)
        changed = differing(self.saved, before)
        known = set(map(identity, files_in(saver.directory)))
        saver.after_step(step)
        saver.drain()
        saver.settle()
        newest, record = saver.newest(), saver.records[-1]
        if newest is None or record.step != step or not record.committed:
            raise RuntimeError(f"save of step {step}: {record.error or 'not committed'}")
        new = [file for file in files_in(newest) if identity(file) not in known]
        return Written(
            size(self.saved, changed),
            sum(file.stat().st_blocks * BLOCK_BYTES for file in new),
            sum(map(header_bytes, new)),
        )

    def result(self, training: Any, saver: Saver) -> dict[str, Any]:
        if saver.is_baseline:
            return {}
        forget(saver.directory)
        other = self.workload.build(self.seed + OTHER_SEED, in_backward=False)
        try:
            other.train_step(1, Saver(other, Path(), 1))  # a restore finds tensors that are there
            gc.collect()
            began = time.perf_counter()
            saver.restore(other)
            seconds = time.perf_counter() - began
            lost = differing(self.saved, copied(other))
        finally:
            other.release()
        return {
            "saves": [asdict(one) for one in self.written],
            "restore_seconds": seconds,
            "lost_bytes": size(self.saved, lost),
            "lost_parts": sorted({name.partition(".")[0] for name in lost}),
        }


def copied(training: Any) -> dict[str, Tensor]:
    return {name: one.detach().clone() for name, one in named("", training.state_dicts())}


def differing(wanted: dict[str, Tensor], found: dict[str, Tensor]) -> list[str]:
    """The names of tensors that are not there, or in which a byte differs."""
    return [name for name, one in wanted.items() if name not in found or not same(one, found[name])]


def same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(bits(one), bits(other))


def bits(tensor: Tensor) -> Tensor:
    """Bytes: numbers may be equal, or never equal, whatever their bits."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def size(tensors: dict[str, Tensor], names: list[str]) -> int:
    return sum(tensors[name].nbytes for name in names)


def identity(file: Path) -> Identity:
    status = file.stat()
    return status.st_dev, status.st_ino, status.st_mtime_ns


def header_bytes(file: Path) -> int:
    """Of a manifest all of it."""
    kind = container_of(file)
    if kind != "safetensors":
        return file.stat().st_size if kind == "JSON" else 0
    with file.open("rb") as opened:
        (length,) = struct.unpack("<Q", opened.read(8))
    return 8 + int(length)
