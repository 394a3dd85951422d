"""Single bits flip: `python -m tests.objects.flips --flips 1000 [--seed S] [--json]`.

A quarter of the flips each: in the near file before its flush; on the way into the store; on the
way out of it; in the store, by a client that gives the right checksum of the wrong bytes. No
restore may give back a state that was never saved. The flush must refuse a near file with a flip,
and so must the store if it is sent with the checksum that its good bytes had; the store must refuse
each request that changes on its way. One flip in 25 is in a file that goes up in parts.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import deepfreeze as df
from examples.demo.program import run_program
from tests.e2e.command import announce_seed, conclude, make_parser, progress

from . import faults
from .checksum import FIELD
from .fault_proxy import FaultProxy, matching
from .faults import flipped_bit
from .seaweed import LEFT_OUT, Seaweed, find_program
from .stored_run import LARGE, StoredRun, proxied_store, state_at, values_of

SMALL = 1 << 16  # bytes: one PUT
LARGE_ONE_IN = 25
STEPS = 2  # in the store when a restore is disturbed
MODE = {"x-amz-checksum-mode": "ENABLED"}
SUM_IT = {"x-amz-checksum-algorithm": "CRC32C"}  # the store calculates the checksum itself


@dataclass
class Found:
    """Flips by kind, and their fates: `refused by the store` counts beside the others."""

    flips: Counter[str] = field(default_factory=Counter)
    fates: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def check(self, holds: bool, fault: str) -> None:
        if not holds:
            self.faults.append(fault)


class Disturbed:
    """A run of one size, in a prefix of its own, and the facts of it that the flips need."""

    def __init__(self, store: Seaweed, proxy: FaultProxy, place: Path, size: int) -> None:
        self.run = StoredRun(store, proxy, store.new_prefix(), place)
        self.size = size
        self._places = 0
        self.run.save(*range(1, STEPS + 1), size=size)
        before = len(proxy.seen)
        self.restore()
        self.gets = sum(seen.method == "GET" for seen in proxy.seen[before:])
        self.step = STEPS

    def restore(self) -> int | None:
        """The step that another machine finds, whose values must be those of that step."""
        self._places += 1
        step, values = self.run.restored(f"elsewhere-{self._places}", self.size)
        if values != values_of(state_at(step or 0, self.size)):
            raise AssertionError(f"a state that was never saved, as step {step}")
        return step

    def disturbed_restore(self) -> str:
        """Its fate."""
        try:
            step = self.restore()
        except df.CheckpointError:
            return "restore refused"
        return "newest restored" if step == self.step else f"step {step} restored"

    def object_of(self, name: str) -> str:
        """The key of a file of the newest step."""
        (key,) = [
            key
            for key in self.run.client.names(f"{self.run.prefix}/step-{self.step:012d}-")
            if key.endswith(name)
        ]
        return key


def in_near_file(it: Disturbed, draw: random.Random, found: Found) -> None:
    """The near run goes into a fresh place of the store; one file has a flip."""
    (near,) = it.run.near.glob(f"step-{it.step:012d}-*/*.safetensors")
    good, url = near.read_bytes(), f"{it.run.url}-near-{draw.randrange(1 << 48):x}"
    bad = flipped_bit(good, draw.random())
    prefix = url.removeprefix(f"s3://{it.run.store.bucket}/")
    near.write_bytes(bad)
    try:
        flushed = run_program("flush", f"{it.run.near}@{it.step}", url)
    finally:
        near.write_bytes(good)
    found.check(flushed.returncode != 0, "a near file with a flip was flushed")
    attempt = f"{prefix}/step-{it.step:012d}-"
    names = it.run.client.names(attempt)
    found.check(names == [], f"after a flush that was refused, the store has {names}")
    found.check(it.run.client.open_uploads(attempt) == [], "an upload was left open")
    found.fates["flush refused"] += flushed.returncode != 0
    # As if nobody had looked: the checksum of the capture, and the bytes of now.
    head = it.run.client.send("HEAD", it.object_of(".safetensors"), fields=MODE)
    sums = {FIELD: head.fields[FIELD]}
    answer = it.run.client.send("PUT", f"{attempt}unseen", body=bad, fields=sums)
    found.check(answer.code == "BadDigest", f"the store took a near file with a flip: {answer}")
    found.fates["refused by the store"] += answer.code == "BadDigest"


def on_the_way_in(it: Disturbed, draw: random.Random, found: Found) -> None:
    """A step is saved; a file or a part of it, or its manifest, changes on its way."""
    keys = ["*.safetensors", "*/manifest.json"]
    when = matching("PUT", draw.choices(keys, (4, 1))[0])
    before = len(it.run.proxy.seen)
    it.step += 1
    with it.run.proxy.doing(faults.flipped_request(draw.random()), when):
        it.run.save(it.step, size=it.size)
    hit = [seen for seen in it.run.proxy.seen[before:] if seen.fault]
    found.check([seen.store_status for seen in hit] == [400], f"the store took a flip: {hit}")
    found.fates["refused by the store"] += len(hit) == 1 and hit[0].store_status == 400
    it.run.assert_whole()
    found.fates["flushed by another try"] += 1


def on_the_way_out(it: Disturbed, draw: random.Random, found: Found) -> None:
    skipped = draw.randrange(it.gets)
    with it.run.proxy.doing(faults.flipped_answer(draw.random()), matching("GET"), skipped):
        found.fates[it.disturbed_restore()] += 1


def in_the_store(it: Disturbed, draw: random.Random, found: Found) -> None:
    """An object of the newest step is replaced."""
    key = it.object_of(draw.choices([".safetensors", "/manifest.json"], (4, 1))[0])
    good = it.run.client.send("GET", key).body
    bad = flipped_bit(good, draw.random())
    assert it.run.client.send("PUT", key, body=bad, fields=SUM_IT).status == 200
    try:
        fate = it.disturbed_restore()
        found.check(fate != "newest restored", f"{key} was restored with a flip in it")
        found.fates[fate.replace(f"step {it.step - 1}", "step before")] += 1
        fast = run_program("verify", "--fast", it.run.url).returncode
        found.check(fast == 1, f"verify --fast ended with {fast}: {key} has a flip")
        found.fates["named by verify --fast"] += fast == 1
    finally:
        assert it.run.client.send("PUT", key, body=good, fields=SUM_IT).status == 200


KINDS: dict[str, Callable[[Disturbed, random.Random, Found], None]] = {
    "near file": in_near_file,
    "way in": on_the_way_in,
    "way out": on_the_way_out,
    "store": in_the_store,
}


def prove(flips: int, seed: int, store: Seaweed, proxy: FaultProxy, place: Path) -> Found:
    """The store is named by the environment."""
    draw, found = random.Random(seed), Found()
    runs: dict[int, Disturbed] = {}
    for number in range(flips):
        kind = list(KINDS)[number % len(KINDS)]
        size = LARGE if number // len(KINDS) % LARGE_ONE_IN == LARGE_ONE_IN - 1 else SMALL
        if size not in runs:
            runs[size] = Disturbed(store, proxy, place / str(size), size)
        try:
            KINDS[kind](runs[size], draw, found)
        except (AssertionError, df.CheckpointError, TimeoutError) as error:
            found.faults.append(f"flip {number}, {kind}: {error}")
        found.flips[kind] += 1
        progress(number + 1, flips, "flips")
    return found


def report(found: Found) -> str:
    flips = ", ".join(f"{count} {kind}" for kind, count in found.flips.items())
    fates = ", ".join(f"{count} {fate}" for fate, count in sorted(found.fates.items()))
    total = sum(found.flips.values())
    return f"object flips: {total} ({flips}): {fates}; {len(found.faults)} faults"


def main(arguments: list[str]) -> int:
    parser = make_parser("tests.objects.flips", __doc__)
    parser.add_argument("--flips", type=int, default=1000)
    options = parser.parse_args(arguments)
    program = find_program()
    if program is None:
        return conclude(options, LEFT_OUT, {"left_out": LEFT_OUT}, [])
    seed = announce_seed(options)
    with proxied_store(options, "object-flips", program) as (place, store, proxy):
        found = prove(options.flips, seed, store, proxy, place)
    return conclude(options, report(found), {"seed": seed, **vars(found)}, found.faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
