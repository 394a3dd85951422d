"""M ranks restore the state of N, in any layout: `python -m tests.ranks.reshard [--all] [--json]`.

One job of 8 processes on loopback; the first N of them save, the first M restore. Without --all
each save is restored by some pairs of a number and a layout, which the seed draws.

With --tiers the run has two farther ones, and before each restore every file stays good on one of
the three places alone: the others have lost it, or have it with a bit flipped, or cut off. Then
there are only replicas, as DistributedDataParallel has them, and shards, as fully_shard() does.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import deepfreeze as df
from tests.e2e.command import announce_seed, conclude, make_parser, scratch

from .job import Job, Say

RANKS = (1, 2, 3, 4, 8)
WORLD = max(RANKS)
DRAWN = 3  # restores of each save, without --all
WAIT_SECONDS = 1200.0

Placements: TypeAlias = list[Any]
State: TypeAlias = dict[str, Any]


def values() -> dict[str, torch.Tensor]:
    """Whole tensors; every element of each is different from its neighbours."""

    def made(number: int, dtype: torch.dtype, *shape: int) -> torch.Tensor:
        count = torch.arange(int(torch.Size(shape).numel()), dtype=torch.int64)
        return ((count * 7919 + number) % 251).to(dtype).reshape(shape)

    return {
        "embedding": made(1, torch.float32, 301, 1024),  # large enough to be cut among replicas
        "weight": made(2, torch.bfloat16, 37, 12),
        "bias": made(3, torch.float64, 9),
        "phase": made(4, torch.complex64, 10, 6),
        "flags": made(5, torch.bool, 5, 3),
        "count": made(6, torch.int64),
        "nothing": made(7, torch.float32, 0, 4),
    }


class Meshes:
    """Meshes of the first ranks, in one or two dimensions. Making them is collective: all do it."""

    def __init__(self, numbers: Sequence[int] = RANKS) -> None:
        self.groups = {ranks: dist.new_group(list(range(ranks))) for ranks in numbers}
        self._meshes = {
            (ranks, rows): DeviceMesh("cpu", torch.arange(ranks).reshape(rows, -1).squeeze(0))
            for ranks in numbers
            for rows in (1, 2)
            if ranks % rows == 0 and ranks > rows
        }

    def line(self, ranks: int) -> DeviceMesh | None:
        return self._meshes.get((ranks, 1))

    def pairs(self, ranks: int) -> DeviceMesh | None:
        """A mesh of two rows."""
        return self._meshes.get((ranks, 2))


Layout: TypeAlias = Callable[[Meshes, int, torch.Tensor], tuple[DeviceMesh, Placements] | None]


def replicated(_: Meshes, __: int, ___: torch.Tensor) -> None:
    """As under DistributedDataParallel: plain tensors."""


def sharded(
    meshes: Meshes, ranks: int, whole: torch.Tensor
) -> tuple[DeviceMesh, Placements] | None:
    mesh = meshes.line(ranks)
    return (mesh, [Shard(0)]) if mesh is not None and whole.dim() else None


def columns(
    meshes: Meshes, ranks: int, whole: torch.Tensor
) -> tuple[DeviceMesh, Placements] | None:
    mesh = meshes.line(ranks)
    return (mesh, [Shard(whole.dim() - 1)]) if mesh is not None and whole.dim() else None


def hybrid(meshes: Meshes, ranks: int, whole: torch.Tensor) -> tuple[DeviceMesh, Placements] | None:
    """Two replicas of each shard."""
    mesh = meshes.pairs(ranks)
    if mesh is None:
        return sharded(meshes, ranks, whole)
    return (mesh, [Replicate(), Shard(0)]) if whole.dim() else (mesh, [Replicate(), Replicate()])


def meshed(meshes: Meshes, ranks: int, whole: torch.Tensor) -> tuple[DeviceMesh, Placements] | None:
    """Rows over one dimension of the mesh, columns over the other."""
    mesh = meshes.pairs(ranks)
    if mesh is None or whole.dim() < 2:
        return sharded(meshes, ranks, whole)
    return mesh, [Shard(0), Shard(1)]


LAYOUTS: dict[str, Layout] = {
    "replicated": replicated,
    "sharded": sharded,
    "columns": columns,
    "hybrid": hybrid,
    "meshed": meshed,
}
STAGED = "staged"  # each tensor on one rank, as the stages of a pipeline have them
NAMES = (*LAYOUTS, STAGED)


def state_of(name: str, meshes: Meshes, ranks: int, rank: int) -> State:
    """The rank's state in this layout."""
    state: State = {}
    for number, (key, whole) in enumerate(values().items()):
        if name == STAGED:
            if number % ranks == rank:
                state[key] = whole
            continue
        placed = LAYOUTS[name](meshes, ranks, whole)
        if placed is None:
            state[key] = whole
        else:
            mesh, placements = placed
            state[key] = distribute_tensor(whole, mesh, placements, src_data_rank=None)
    return {"model": state, "step": 5}


def local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def zeroed(state: State) -> State:
    return {"model": {k: torch.zeros_like(v) for k, v in state["model"].items()}, "step": 0}


def differing(found: State, wanted: State) -> list[str]:
    names = [
        key
        for key, tensor in wanted["model"].items()
        if not torch.equal(local(found["model"][key]), local(tensor))
    ]
    return names + (["step"] if found["step"] != wanted["step"] else [])


def spoil(file: Path, how: str) -> None:
    if how == "gone":
        file.unlink()
        return
    data = bytearray(file.read_bytes())
    if how == "flipped":
        data[-1] ^= 1  # of a tensor, or of the padding behind a header without any
    file.write_bytes(data[: len(data) // 2] if how == "cut off" else data)


def scatter(whole: dict[Path, bytes], places: Sequence[Path], draw: random.Random) -> None:
    """Leaves each file good in one of the places. `whole` has their bytes, by path in a run."""
    for name, data in whole.items():
        good = draw.choice(places)
        for place in places:
            (place / name).write_bytes(data)  # an earlier restore may have mended it
            if place is not good:
                spoil(place / name, draw.choice(("gone", "flipped", "cut off")))


class Matrix:
    """One rank's part of all saves and restores."""

    def __init__(self, rank: int, place: Path, seed: int | None = None) -> None:
        """A seed means that there are tiers."""
        self._rank = rank
        self._place = place
        self._draw = None if seed is None else random.Random(seed)
        self._whole: dict[Path, dict[Path, bytes]] = {}  # of each run, as it was saved
        self._meshes = Meshes()
        self._ranks = {
            ranks: df.TorchRanks(self._meshes.groups[ranks])
            for ranks in RANKS
            if rank < ranks and ranks > 1
        }

    def save(self, name: str, ranks: int) -> None:
        if self._rank < ranks:
            state = state_of(name, self._meshes, ranks, self._rank)
            with self._opened(name, ranks, ranks) as ckpt:
                handle = ckpt.save(5, state)
                assert handle is not None
                handle.wait("durable")
        dist.barrier()

    def restore(self, name: str, ranks: int, to_name: str, to_ranks: int) -> list[str]:
        """The faults that this rank has found."""
        faults = []
        if self._draw is not None:
            if self._rank == 0:
                places = self._places(name, ranks)
                whole = self._whole.setdefault(
                    places[0],
                    {
                        file.relative_to(places[0]): file.read_bytes()
                        for file in sorted(places[0].glob("step-*/*.safetensors"))
                    },
                )
                scatter(whole, places, self._draw)
            dist.barrier()
        if self._rank < to_ranks:
            wanted = state_of(to_name, self._meshes, to_ranks, self._rank)
            found = zeroed(wanted)
            with self._opened(name, ranks, to_ranks) as ckpt:
                strict = to_name != STAGED or to_ranks == 1  # a stage has only some of the tensors
                step = ckpt.restore(found, strict=strict)
            wrong = differing(found, wanted)
            if step != 5 or wrong:
                faults.append(
                    f"{name} of {ranks} as {to_name} of {to_ranks}, rank {self._rank}: {wrong}"
                )
        dist.barrier()
        return faults

    def _opened(self, name: str, ranks: int, opened_by: int) -> df.Checkpointer:
        run, *farther = self._places(name, ranks)
        tiers = [df.tier(path) for path in farther]
        return df.Checkpointer(run, ranks=self._ranks.get(opened_by), tiers=tiers)

    def _places(self, name: str, ranks: int) -> list[Path]:
        levels = ("near",) if self._draw is None else ("near", "far", "farther")
        return [self._place / level / f"{name}-{ranks}" for level in levels]


def saves(names: Sequence[str]) -> Iterator[tuple[str, int]]:
    for name in names:
        for ranks in RANKS:
            yield name, ranks


def carry_out(
    rank: int,
    say: Say,
    place: Path,
    chosen: dict[tuple[str, int], list[Any]],
    seed: int | None = None,
) -> None:
    matrix = Matrix(rank, place, seed)
    faults: list[str] = []
    for save, restores in chosen.items():
        matrix.save(*save)
        for restore in restores:
            faults += matrix.restore(*save, *restore)
    say(json.dumps(faults[:20]))


def choose(
    every: bool, draw: random.Random, names: Sequence[str] = NAMES
) -> dict[tuple[str, int], list[Any]]:
    pairs = list(saves(names))
    return {save: pairs if every else draw.sample(pairs, DRAWN) for save in pairs}


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser("tests.ranks.reshard", __doc__)
    parser.add_argument("--all", action="store_true", help="every save by every pair")
    parser.add_argument("--tiers", action="store_true", help="files from three places")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    seed = announce_seed(options)
    names = ("replicated", "sharded") if options.tiers else NAMES
    chosen = choose(options.all, random.Random(seed), names)
    tiers_seed = seed if options.tiers else None
    with scratch(options, "reshard") as place:
        job = Job(WORLD, lambda rank, _, say: carry_out(rank, say, Path(place), chosen, tiers_seed))
        ended = job.wait(WAIT_SECONDS)
    faults = [f"rank {i} failed: {e.report}" for i, e in enumerate(ended) if e.status != 0]
    faults += [fault for one in ended if one.status == 0 for fault in json.loads(one.report)]
    count = sum(len(restores) for restores in chosen.values())
    text = (
        f"reshard{' from three places' if options.tiers else ''}: {len(chosen)} saves in "
        f"{len(names)} layouts by {', '.join(map(str, RANKS))} "
        f"ranks, {count} restores in any of these: {len(faults)} differ"
    )
    figures = {"saves": len(chosen), "restores": count, "faults": faults}
    return conclude(options, text, figures, faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
