"""Jobs that save and load through torch.distributed.checkpoint: `python -m tests.ranks.dcp_cases`.

M ranks load the state that N ranks have saved, by deepfreeze.dcp's writer and reader and by
deepfreeze:// ids; an error on one rank is an error on all; a lost rank costs only saves that were
not acknowledged. Each job is of forked processes on loopback; each case returns its faults.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch.distributed.checkpoint import HuggingFaceStorageReader
from torch.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from deepfreeze.dcp import AsyncStager, StorageReader, StorageWriter
from deepfreeze.dcp.connections import connection
from deepfreeze.dcp.session import Session
from deepfreeze.frameworks.torch.ranks import TorchStoreRanks
from tests.e2e.command import conclude, make_parser, scratch

from .job import Job, Say
from .reshard import LAYOUTS, STAGED, Meshes, State, differing, state_of, values, zeroed
from .training import make_model

NUMBERS = (1, 2, 4)
WORLD = max(NUMBERS)
WAIT_SECONDS = 240.0
SHORT_SECONDS = 3.0  # after which a rank that does not come is an error

Faults: TypeAlias = list[str]


class Way:
    """How a state gets to a directory and back."""

    def __init__(self, name: str) -> None:
        self.name = name

    def save(self, state: State, folder: Path, group: dist.ProcessGroup | None = None) -> None:
        options: dict[str, Any] = {"process_group": group}
        if self.name == "url":
            dcp.save(state, checkpoint_id=f"deepfreeze://{folder}", **options)
            return
        with StorageWriter(folder) as writer:
            dcp.save(state, storage_writer=writer, **options)

    def load(self, state: State, folder: Path, group: dist.ProcessGroup | None = None) -> None:
        options: dict[str, Any] = {"process_group": group}
        if self.name == "url":
            dcp.load(state, checkpoint_id=f"deepfreeze://{folder}", **options)
        else:
            dcp.load(state, storage_reader=StorageReader(folder), **options)


WAYS = (Way("run"), Way("url"))


def filled(value: float) -> State:
    """Alike on all ranks but for their shards."""
    return {"w": torch.full((600, 700), value), "n": int(value), "pair": (value, "x")}


def wrong(found: State, value: float) -> Faults:
    same = torch.equal(found["w"], filled(value)["w"]) and found["pair"] == (value, "x")
    return [] if same and found["n"] == int(value) else [f"{found['n']} for {value}"]


def refusal(call: Callable[[], object]) -> str:
    """The messages of all ranks' exceptions, in one line."""
    try:
        call()
    except BaseException as error:  # a CheckpointException is one
        return f"{type(error).__name__}: {error}"
    return "nothing"


class OnOneRank(DefaultSavePlanner):
    """Does another act in place of its method, on rank 1."""

    def __init__(self, act: Callable[[], object], where: str) -> None:
        super().__init__()
        self._act = act
        self._where = where

    def resolve_data(self, write_item: Any) -> Any:
        if self._where == "resolve_data" and dist.get_rank() == 1:
            self._act()
        return super().resolve_data(write_item)

    def finish_plan(self, new_plan: Any) -> Any:
        if self._where == "finish_plan" and dist.get_rank() == 1:
            self._act()
        return super().finish_plan(new_plan)


def fails() -> None:
    raise ZeroDivisionError("on purpose")


# Cases of the job of four, one after the other.


def any_layout_by_any_number(rank: int, place: Path) -> Faults:
    meshes = Meshes(NUMBERS)
    faults: Faults = []
    for way in WAYS:
        for name in (*LAYOUTS, STAGED):
            for saved, loaded in ((4, 2), (2, 4), (1, 4)) if name != STAGED else ((4, 4),):
                folder = place / f"{way.name}-{name}-{saved}-{loaded}"
                if rank < saved:
                    way.save(state_of(name, meshes, saved, rank), folder, meshes.groups[saved])
                dist.barrier()
                other = name if name == STAGED else "meshed" if loaded == 4 else "columns"
                if rank < loaded:
                    wanted = state_of(other, meshes, loaded, rank)
                    found = zeroed(wanted)
                    way.load(found, folder, meshes.groups[loaded])
                    bad = differing(found, wanted)
                    faults += [f"{folder.name}, rank {rank}: {bad}"] if bad else []
                dist.barrier()
    staged = StorageReader(place / f"run-{STAGED}-4-4").read_metadata()
    names = {f"model.{name}" for name in values()} | {"step"}
    return faults + ([] if set(staged.planner_data) == names else [str(staged.planner_data)])


def names_that_only_one_rank_escapes(rank: int, place: Path) -> Faults:
    """ "@" begins a key of our own, and is stored as "%40"; "%40" must not become the same."""
    mesh = init_device_mesh("cpu", (WORLD,))
    whole = torch.arange(32.0).view(16, 2)
    shards = distribute_tensor(whole, mesh, [Shard(0)], src_data_rank=None)
    state: State = {"@x": torch.ones(3)} if rank == 1 else {}
    state |= {"%40x": shards, "within": (shards,)}
    with StorageWriter(place / "names") as writer:
        dcp.save(state, storage_writer=writer)
    found = {"%40x": torch.zeros(16, 2), "@x": torch.zeros(3)}
    WAYS[0].load(found, place / "names")
    faults = [] if torch.equal(found["%40x"], whole) and found["@x"].eq(1).all() else ["differs"]
    said = refusal(lambda: WAYS[0].load({"within": None}, place / "names"))
    return faults + ([] if "within could only be stored as a pickle" in said else [said])


def a_sharded_training_state(rank: int, place: Path) -> Faults:
    def trained(seed: int) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        model = make_model("fsdp", WORLD)
        optimizer = torch.optim.Adam(model.parameters(), lr=seed * 1e-3)
        torch.manual_seed(seed)
        model(torch.randn(8, 32)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        return model, optimizer

    model, optimizer = trained(1)
    state, optim_state = get_state_dict(model, optimizer)
    way, folder = WAYS[0], place / "training"
    way.save({"model": state, "optim": optim_state}, folder)
    other, other_optimizer = trained(2)
    state, optim_state = get_state_dict(other, other_optimizer)
    found = {"model": state, "optim": optim_state}
    way.load(found, folder)
    set_state_dict(
        other,
        other_optimizer,
        model_state_dict=found["model"],
        optim_state_dict=found["optim"],
    )
    pairs = zip(model.parameters(), other.parameters(), strict=True)
    same = all(torch.equal(a.to_local(), b.to_local()) for a, b in pairs)
    moments = [
        [entry["exp_avg"].to_local() for entry in one.state.values()]
        for one in (optimizer, other_optimizer)
    ]
    same = same and all(map(torch.equal, *moments))
    return [] if same and other_optimizer.param_groups[0]["lr"] == 1e-3 else ["it differs"]


def torchs_reader_of_safetensors_takes_what_is_whole(rank: int, place: Path) -> Faults:
    folder = place / "whole"
    with StorageWriter(folder) as writer:
        dcp.save(filled(1) | {"half": torch.ones(9, dtype=torch.bfloat16)}, storage_writer=writer)
    (attempt,) = folder.glob("step-*")
    found: State = {"w": torch.zeros(600, 700), "half": torch.zeros(9, dtype=torch.bfloat16)}
    dcp.load(found, storage_reader=HuggingFaceStorageReader(str(attempt)))
    return [] if found["w"].eq(1).all() and found["half"].eq(1).all() else [f"rank {rank}"]


def torchs_readers_of_safetensors_put_shards_together(rank: int, place: Path) -> Faults:
    """By rows and by columns, unevenly; and tensors that all ranks have and write in part."""
    whole = {
        "rows": torch.arange(35.0).view(7, 5),
        "columns": torch.arange(35.0).view(7, 5).half() + 100,
        "same": torch.arange(420_000.0).view(600, 700),
        "scale": torch.tensor(3.0),
    }
    mesh = init_device_mesh("cpu", (WORLD,))

    def cut(name: str, dimension: int) -> DTensor:
        return distribute_tensor(whole[name], mesh, [Shard(dimension)], src_data_rank=None)

    folder, merged = place / "shards", place / "merged"
    with StorageWriter(folder) as writer:
        state = {**whole, "rows": cut("rows", 0), "columns": cut("columns", 1)}
        dcp.save(state, storage_writer=writer)
    (attempt,) = folder.glob("step-*")
    found: State = {name: torch.zeros_like(tensor) for name, tensor in whole.items()}
    found["columns"] = cut("columns", 0)  # another sharding than it was saved in
    found["columns"].to_local().zero_()
    dcp.load(found, storage_reader=HuggingFaceStorageReader(str(attempt)))
    found["columns"] = found["columns"].full_tensor()
    faults = [f"rank {rank}: {name}" for name in whole if not torch.equal(found[name], whole[name])]
    if rank == 0:
        merged.mkdir()
        consolidate_safetensors_files(str(attempt), str(merged), dict.fromkeys(whole, 1))
        (file,) = merged.glob("*.safetensors")
        once = load_file(file)
        del whole["scale"]  # of a tensor without dimensions torch 2.13 copies nothing
        faults += [f"merged {name}" for name in whole if not torch.equal(once[name], whole[name])]
    return faults


def what_one_rank_can_not_give_is_an_error_on_all(rank: int, place: Path) -> Faults:
    folder = place / "failing"
    faults: Faults = []
    with StorageWriter(folder) as writer:
        dcp.save(filled(1), storage_writer=writer)
        planner = OnOneRank(fails, "resolve_data")
        state = filled(2) | {f"own{rank}": torch.ones(3)}
        said = refusal(lambda: dcp.save(state, storage_writer=writer, planner=planner))
        if "rank 1: on purpose" not in said and (rank or "on purpose" not in said):
            faults.append(f"rank {rank}: {said[-300:]}")
        dcp.save(filled(3), storage_writer=writer)
    found = filled(-1)
    WAYS[0].load(found, folder)
    return faults + wrong(found, 3)


def a_rank_that_does_not_come_is_an_error_and_the_next_save_works(rank: int, place: Path) -> Faults:
    folder = place / "absent"
    with StorageWriter(folder, timeout_seconds=SHORT_SECONDS) as writer:
        dcp.save(filled(1), storage_writer=writer)
        planner = OnOneRank(fails, "finish_plan")
        said = refusal(lambda: dcp.save(filled(2), storage_writer=writer, planner=planner))
        faults = [] if "on purpose" in said and "did not come" in said else [said]
        dcp.save(filled(3), storage_writer=writer)
        generations = len(list(folder.glob("generation-*")))
    found = filled(-1)
    WAYS[0].load(found, folder)
    return faults + wrong(found, 3) + ([] if generations == 1 else [f"{generations} claims"])


def ranks_that_have_not_the_same_open_open_it_anew(rank: int, place: Path) -> Faults:
    folder = place / "closed"
    with StorageWriter(folder, timeout_seconds=30) as writer:
        dcp.save(filled(1), storage_writer=writer)
        if rank == 1:
            writer.close()
        dcp.save(filled(2), storage_writer=writer)
        generations = len(list(folder.glob("generation-*")))
        first_two = dist.new_group([0, 1])
        if rank < 2:
            dcp.save(filled(3), storage_writer=writer, process_group=first_two)
        dist.barrier()
        dcp.save(filled(4), storage_writer=writer)
    found = filled(-1)
    WAYS[0].load(found, folder)
    return wrong(found, 4) + ([] if generations == 2 else [f"{generations} claims"])


def a_rank_that_leaves_once_all_have_agreed_is_an_error_on_all(rank: int, place: Path) -> Faults:
    folder = place / "left"
    with StorageWriter(folder, timeout_seconds=SHORT_SECONDS) as writer:
        dcp.save(filled(1), storage_writer=writer)
        save = Session._commit
        if rank == 1:
            Session._commit = lambda *_: fails()  # type: ignore[method-assign]
        said = refusal(lambda: dcp.save(filled(2), storage_writer=writer))
        Session._commit = save  # type: ignore[method-assign]
        faults = [] if "on purpose" in said and "did not come" in said else [said]
        dcp.save(filled(3), storage_writer=writer)
    found = filled(-1)
    WAYS[0].load(found, folder)
    return faults + wrong(found, 3)


def damage_that_one_rank_meets_makes_all_fall_back(rank: int, place: Path) -> Faults:
    folder = place / "damaged"
    with StorageWriter(folder) as writer:
        for value in (1, 2):
            state: State = {f"own{rank}": torch.full((1000,), float(value)), "n": value}
            dcp.save(state, storage_writer=writer)
    if rank == 0:
        (path,) = folder.glob("step-000000000002-*/rank-00002-of-*.safetensors")
        data = bytearray(path.read_bytes())
        data[-5] ^= 1
        path.write_bytes(data)
    dist.barrier()
    found: State = {f"own{rank}": torch.zeros(1000), "n": 0}
    WAYS[0].load(found, folder)
    same = found["n"] == 1 and found[f"own{rank}"].eq(1).all()
    return [] if same else [f"rank {rank}: {found['n']}, {found[f'own{rank}'][0]}"]


class LatecomersReader(StorageReader):
    """Finds the step before, as if the newest had come just after it looked."""

    def read_metadata(self, *args: Any, **options: Any) -> Any:
        metadata = super().read_metadata(*args, **options)
        if dist.get_rank() == 2:
            self._planned = self._stored_as(self._next_attempt())
        return metadata


def ranks_that_look_at_different_times_load_one_step(rank: int, place: Path) -> Faults:
    folder = place / "times"
    with StorageWriter(folder) as writer:
        for value in (1, 2):
            dcp.save(filled(value), storage_writer=writer)
    found = filled(-1)
    dcp.load(found, storage_reader=LatecomersReader(folder))
    return wrong(found, 2)


def the_trainers_thread_may_wait_on_the_store_meanwhile(rank: int, place: Path) -> Faults:
    """Rank 0 answers it only after the ranks have talked in other threads."""
    store: Any = dist.distributed_c10d._get_default_store()
    talking = threading.Thread(target=lambda: talk(rank))
    talking.start()
    if rank == 0:
        talking.join()
        store.set("the-trainers", "own")
    else:
        store.get("the-trainers")
        talking.join()
    return []


def talk(rank: int) -> None:
    with connection(WORLD) as store:
        ranks = TorchStoreRanks(store, "of-a-test", rank, WORLD, timeout_seconds=60)
        for _ in range(3):
            given = ranks.gather(b"x" * (rank + 1))
            ranks.scatter(given or [])


def async_saves(rank: int, place: Path) -> Faults:
    folder = place / "async"
    stager = AsyncStager()
    state = filled(0)
    with StorageWriter(folder) as writer:
        for value in (1, 2, 3):
            state["w"].fill_(value)
            state |= {"n": value, "pair": (float(value), "x")}
            saved: Any = dcp.async_save(state, storage_writer=writer, async_stager=stager)
            state["w"].fill_(-1)
            saved.result(60)
        generations = len(list(folder.glob("generation-*")))
    found = filled(-1)
    WAYS[0].load(found, folder)
    shards = DTensor.from_local(torch.ones(3, 2), init_device_mesh("cpu", (WORLD,)), [Shard(0)])
    staged: Any = stager.stage({"w": shards})
    shards.to_local().zero_()
    copied = isinstance(staged["w"], DTensor) and staged["w"].to_local().eq(1).all()
    stager.close()
    faults = wrong(found, 3) + ([] if generations == 1 else [f"{generations} claims"])
    return faults + ([] if copied else ["a shard was not copied"])


TOGETHER = (
    any_layout_by_any_number,
    names_that_only_one_rank_escapes,
    a_sharded_training_state,
    torchs_reader_of_safetensors_takes_what_is_whole,
    torchs_readers_of_safetensors_put_shards_together,
    what_one_rank_can_not_give_is_an_error_on_all,
    a_rank_that_does_not_come_is_an_error_and_the_next_save_works,
    ranks_that_have_not_the_same_open_open_it_anew,
    a_rank_that_leaves_once_all_have_agreed_is_an_error_on_all,
    damage_that_one_rank_meets_makes_all_fall_back,
    ranks_that_look_at_different_times_load_one_step,
    the_trainers_thread_may_wait_on_the_store_meanwhile,
    async_saves,
)

# Jobs of their own.


def async_saves_by_a_process(rank: int, say: Say, place: Path) -> None:
    """Each rank's process executor is a new interpreter with a group of its own."""
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    stager = AsyncStager()
    state = filled(0)
    for value in (1, 2):
        state["w"].fill_(value)
        state |= {"n": value, "pair": (float(value), "x")}
        saved: Any = dcp.async_save(
            state,
            storage_writer=StorageWriter(place / "process", timeout_seconds=60),
            async_stager=stager,
            async_checkpointer_type=AsyncCheckpointerType.PROCESS,
        )
        state["w"].fill_(-1)
        step = saved.result(120).storage_meta.save_id
    del saved
    found = filled(-1)
    WAYS[0].load(found, place / "process")
    say(json.dumps(wrong(found, 2) + ([] if step == "2" else [f"step {step}"])))


def loses_a_rank(way: Way, rank: int, place: Path) -> None:
    """Rank 1 is killed in its second save, before it writes anything."""
    folder = place / way.name
    way.save(sharded(1), folder)
    planner = OnOneRank(lambda: os.kill(os.getpid(), signal.SIGKILL), "resolve_data")
    options: dict[str, Any] = {"checkpoint_id": f"deepfreeze://{folder}"}
    if way.name == "run":
        options = {"storage_writer": StorageWriter(folder, timeout_seconds=SHORT_SECONDS)}
    refusal(lambda: dcp.save(sharded(2), planner=planner, **options))
    os._exit(0)  # the group is broken


def sharded(value: float) -> State:
    mesh = init_device_mesh("cpu", (2,))
    whole = torch.full((8, 3), value)
    return {"w": distribute_tensor(whole, mesh, [Shard(0)], src_data_rank=None), "n": int(value)}


def lost_ranks(place: Path) -> Iterator[str]:
    for way in WAYS:
        job = Job(2, lambda rank, _, __, way=way: loses_a_rank(way, rank, place))
        ended = job.wait(WAIT_SECONDS)
        if [one.killed for one in ended] != [False, True]:
            yield f"{way.name}: rank 1 was not killed: {ended}"
        pid = os.fork()
        if pid == 0:  # so that this process keeps having no threads
            state = {"w": torch.zeros(8, 3), "n": 0}
            way.load(state, place / way.name)
            os._exit(0 if state["n"] == 1 and state["w"].eq(1).all() else 1)
        if os.waitpid(pid, 0)[1]:
            yield f"{way.name}: what loads is not the step before"


def carry_out(rank: int, say: Say, place: Path) -> None:
    faults: Faults = []
    for case in TOGETHER:
        began = time.monotonic()
        faults += [f"{case.__name__}: {fault}" for fault in case(rank, place)]
        dist.barrier()
        if rank == 0:
            print(f"{case.__name__}: {time.monotonic() - began:.1f} s", file=sys.stderr)
    say(json.dumps(faults[:20]))


def faults_of(job: Job) -> Iterator[str]:
    for rank, one in enumerate(job.wait(WAIT_SECONDS)):
        if one.status:
            yield f"rank {rank} failed: {one.report}"
        else:
            yield from json.loads(one.report)


def together(place: Path) -> Iterator[str]:
    yield from faults_of(Job(WORLD, lambda rank, _, say: carry_out(rank, say, place)))


def by_a_process(place: Path) -> Iterator[str]:
    yield from faults_of(Job(2, lambda rank, _, say: async_saves_by_a_process(rank, say, place)))


PARTS = {part.__name__: part for part in (together, by_a_process, lost_ranks)}


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser("tests.ranks.dcp_cases", __doc__)
    parser.add_argument("part", choices=PARTS)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    warnings.simplefilter("ignore")  # that an id is used again
    logging.getLogger("deepfreeze").setLevel(logging.ERROR)
    with scratch(options, "dcp") as place:
        faults = list(PARTS[options.part](Path(place)))
    return conclude(options, f"{options.part}: {len(faults)} faults", {"faults": faults}, faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
