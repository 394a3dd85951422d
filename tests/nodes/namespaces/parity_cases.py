"""Jobs whose nodes protect each other by parity, and that lose nodes. There is no farther tier."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.e2e.command import progress
from tests.ranks.job import Job, Say

if TYPE_CHECKING:
    from .cases import Site

NODES = 4
LOST = 2
FAR_EVERY = 2
CLOSE_SECONDS = 5.0
NEVER_SECONDS = 60.0
MOMENT_SECONDS_MAX = 3.0  # from the first protected step of a life to the loss


def train(
    here: Site, kind: str, rank: int, steps: int, log: Path, *, has_far: bool = False
) -> None:
    """Restores, and then saves after each step. `log` gets a line for each restored, saved and
    protected step, and each durable one of a farther tier, with the digest of the state.
    """
    import deepfreeze as df
    from tests.ranks.training import Training

    training = Training(kind, rank, NODES)

    def note(event: str, step: int, digest: str, places: dict[str, str] | None = None) -> None:
        line = {"event": event, "step": step, "digest": digest, "places": places or {}}
        with log.open("a") as file:
            file.write(json.dumps(line) + "\n")

    # A step whose files were lost can't be flushed: no node brings them.
    parity = df.parity(NODES - LOST, LOST, close_seconds=CLOSE_SECONDS)
    far = df.tier(here.far, every=FAR_EVERY, close_seconds=CLOSE_SECONDS)
    tiers = [far] if has_far else []
    with here.open(tiers=tiers, protect=parity, keep=df.keep(last=2)) as ckpt:
        first = ckpt.restore(training.state) or 0
        found = ckpt.last_restore
        places = {name: str(at) for name, at in found.tiers.items()} if found else {}
        note("restored", first, training.digest(), places)
        ckpt.attach(training.optimizer)
        for step in range(first + 1, first + steps + 1):
            training.step()
            digest = training.digest()
            note("begun", step, digest)
            handle = ckpt.save(step, training.state)
            assert handle is not None
            handle.wait("protected", NEVER_SECONDS)
            note("protected", step, digest)
            if has_far and step % FAR_EVERY == 0:
                handle.wait("durable", NEVER_SECONDS)
                note("durable", step, digest)


class Logs:
    """The lines of all ranks in all lives of the job."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._read = dict.fromkeys(range(NODES), 0)
        self._digests: dict[tuple[int, int], str] = {}  # by rank and step
        self.protected = dict.fromkeys(range(NODES), 0)  # the newest step
        self.durable = 0
        self.restored: list[int] = []  # steps
        self.rebuilt = 0  # files, as each rank has read them
        self.faults: list[str] = []

    def of_rank(self, rank: int) -> Path:
        return self._place / f"rank-{rank}.jsonl"

    def _new_lines(self, rank: int) -> list[dict[str, Any]]:
        path = self.of_rank(rank)
        text = path.read_text() if path.exists() else ""
        whole = text[self._read[rank] : text.rfind("\n") + 1]  # the last one may be torn
        self._read[rank] += len(whole)
        return [json.loads(line) for line in whole.splitlines()]

    def hear(self) -> None:
        """A step has one digest in all lives; no restore takes one older than a protected step."""
        floor = self.floor()
        for rank in range(NODES):
            for line in self._new_lines(rank):
                step, digest = line["step"], line["digest"]
                known = self._digests.setdefault((rank, step), digest)
                if known != digest:
                    self.faults.append(f"rank {rank}, {line['event']} step {step}: other bytes")
                if line["event"] == "protected":
                    self.protected[rank] = step
                elif line["event"] == "durable":
                    self.durable = max(self.durable, step)
                elif line["event"] == "restored":
                    self.restored.append(step)
                    self.rebuilt += sum("from parity" in at for at in line["places"].values())
                    if step < floor:
                        self.faults.append(f"rank {rank} got step {step}; {floor} was safe")

    def floor(self) -> int:
        """No restore may take an older step."""
        return max(self.durable, *self.protected.values())

    def end_life(self) -> None:
        """A torn line of a killed rank is no line."""
        for rank in range(NODES):
            path = self.of_rank(rank)
            text = path.read_text() if path.exists() else ""
            path.write_text(text[: text.rfind("\n") + 1])


def lives(here: Site, kind: str, place: Path, draw: random.Random, losses: int) -> Logs:
    """The job lives once more than it loses nodes."""
    logs = Logs(place)
    for life in range(losses + 1):
        progress(life, losses, "losses")
        steps = 3 if life == losses else 100_000

        def work(rank: int, _: Say, steps: int = steps) -> None:
            train(here, kind, rank, steps, logs.of_rank(rank))

        job = here.start(range(NODES), work)
        if life == losses:
            ended = job.wait(NEVER_SECONDS)
            logs.faults += [f"the last life: {one}" for one in ended if one.status != 0]
        else:
            lose_some(here, job, logs, draw)
        logs.hear()
        logs.end_life()
        if logs.faults:
            break
    return logs


def lose_some(here: Site, job: Job, logs: Logs, draw: random.Random) -> None:
    """At a random moment after the first step that this life has protected."""
    before = max(logs.protected.values())
    until = time.monotonic() + NEVER_SECONDS
    while max(logs.protected.values()) <= before and not logs.faults:
        if time.monotonic() > until:
            logs.faults.append(f"nothing newer than step {before} was protected")
        time.sleep(0.02)
        logs.hear()
    time.sleep(draw.uniform(0, MOMENT_SECONDS_MAX))
    for number in draw.sample(range(NODES), LOST):
        job.signal(number, signal.SIGKILL)
        lose(here, number)
    stop_all(job)


def stop_all(job: Job) -> None:
    """As a launcher does when a rank is gone."""
    with contextlib.suppress(ProcessLookupError):
        job.kill_all()
    job.wait(NEVER_SECONDS)


def lose(here: Site, number: int) -> None:
    """Another machine with an empty disk comes in its place. A dying rank may hold the old disk."""
    machine = here.machines[number]
    until = time.monotonic() + NEVER_SECONDS
    while True:
        try:
            machine.lose_near()
            break
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
    machine.have_near()


@dataclass(frozen=True)
class Outcome:
    """The faults of a case, and a line of figures."""

    faults: list[str]
    told: str = ""


def losses(kind: str, place: Path, count: int) -> Outcome:
    from .cases import site

    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}", file=sys.stderr)
    with site(place, NODES) as here:
        logs = lives(here, kind, place, random.Random(seed), count)
    print(f"restored steps {logs.restored}", file=sys.stderr)
    told = f"{count} losses of {LOST} of {NODES} nodes, {logs.rebuilt} files from parity"
    faults = [f"seed {seed}: {fault}" for fault in logs.faults]
    if not faults and logs.rebuilt < count:
        faults.append(f"seed {seed}: only {logs.rebuilt} files came from parity")
    return Outcome(faults, told)


def ddp_loses_nodes(place: Path) -> Outcome:
    return losses("ddp", place, 2)


def fsdp_loses_nodes(place: Path) -> Outcome:
    return losses("fsdp", place, 1)


def ddp_loses_nodes_100_times(place: Path) -> Outcome:
    """About ten minutes."""
    return losses("ddp", place, 100)


def fsdp_loses_nodes_100_times(place: Path) -> Outcome:
    """The same."""
    return losses("fsdp", place, 100)
