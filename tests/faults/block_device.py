"""A disk that fails, stalls, is slow or lies, below a real trainer: `python -m
tests.faults.block_device`.

Afterwards the file system is repaired and mounted again, and every promise is looked at. Exit
status 1 where one was broken. `--quick` tries each kind a few times.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.command import announce_seed, conclude, make_parser, progress, scratch

from .block_disk import BlockDisk, DamagedError, NotHereError, have_mounts_of_our_own, missing
from .trainer import SECONDS_MAX, EndedError, Running, Said, call, faults_in, faults_of

MODULE = "tests.faults.block_device"
ERRORS = (["error"], ["error=EIO", "error-pwrite-rate=100%"])
SLOW = (["rate"], ["rate=8M"])  # bits: 1 MB/s
STALL_STEPS = 100  # while the disk stands still, at least
SLOW_SAVES = 5
STEP_SECONDS = 0.005  # of faults_trainer, or longer
QUIET_SECONDS = 0.5
SHORT_STALL_SECONDS = 3.0
LONG_STALL_SECONDS = 60.0
# What one save() may take of who may skip, whatever the disk does. It is some milliseconds; the
# rest is for a busy machine. Less than any of the stalls, so that who waits for one is found.
SAVE_SECONDS_MAX = 1.0


@dataclass
class Tally:
    """What was tried, and what was broken."""

    tried: dict[str, int] = field(default_factory=dict)
    longest_save: dict[str, float] = field(default_factory=dict)  # seconds, by scenario
    faults: list[str] = field(default_factory=list)

    def add(self, name: str, count: int = 1) -> None:
        self.tried[name] = self.tried.get(name, 0) + count

    def time(self, name: str, seconds: float) -> None:
        self.longest_save[name] = max(self.longest_save.get(name, 0), seconds)


Scenario = Callable[[BlockDisk, random.Random, Tally], list[str]]


def stall_faults(ended: Said, least: float = 0, most: float = SAVE_SECONDS_MAX) -> list[str]:
    """What its longest save() breaks of these bounds."""
    longest = ended.stall_seconds_max
    if longest is None:
        return [f"it did not say how long its saves took: {ended.lines[-3:]}"]
    if not least <= longest <= most:
        return [f"a save() took {longest} s: not between {least} and {most}"]
    return []


def _remounted_faults(disk: BlockDisk, acknowledged: int) -> list[str]:
    disk.detach()
    disk.attach()
    found = faults_of(disk.path / "run", acknowledged)
    again = call("save", disk.path / "run", "1")
    if not again.steps("durable"):
        found.append(f"the next save fails: {again.lines}")
    return found


def errors(disk: BlockDisk, draw: random.Random, tally: Tally) -> list[str]:
    """Every write fails until a save has, and some milliseconds more; the trainer outlives it."""
    disk.attach(ERRORS[0], [*ERRORS[1], f"error-file={disk.trigger}"])
    with Running("save", disk.path / "run", "200") as trainer:
        trainer.must_say("durable", draw.randrange(1, 40))
        time.sleep(draw.uniform(0, 0.02))  # to somewhere within a save
        disk.trigger.touch()
        trainer.must_say("failed")
        time.sleep(draw.uniform(0.001, 0.1))
        disk.trigger.unlink()
        trainer.wait_for_end()
    ended = trainer.said()
    tally.add("failed saves", len(ended.steps("failed")))
    found = [] if "closed" in ended.lines else [f"the trainer ended with {ended.exit_status}"]
    return found + _remounted_faults(disk, ended.newest_durable)


def stall(disk: BlockDisk, draw: random.Random, tally: Tally) -> list[str]:
    """The disk stands still: training goes on, and when it goes on all is as it was."""
    return _stall_of_one_who_skips(disk, draw, tally, SHORT_STALL_SECONDS)


def long_stall(disk: BlockDisk, draw: random.Random, tally: Tally) -> list[str]:
    """The same for a minute."""
    return _stall_of_one_who_skips(disk, draw, tally, LONG_STALL_SECONDS)


def _stall_of_one_who_skips(
    disk: BlockDisk, draw: random.Random, tally: Tally, seconds: float
) -> list[str]:
    disk.attach()
    found = []
    saves = 4 * STALL_STEPS + round(seconds / STEP_SECONDS)
    with Running("skip", disk.path / "run", str(saves)) as trainer:
        trainer.must_say("durable")
        time.sleep(draw.uniform(0, 0.1))
        until = time.monotonic() + seconds
        disk.stall()
        time.sleep(QUIET_SECONDS)  # what had ended before is said by then
        before = trainer.said()
        if not trainer.wait_for("skipped", len(before.steps("skipped")) + STALL_STEPS):
            found.append(f"a save waits for a disk that stands still: {trainer.said().lines[-3:]}")
        time.sleep(max(0, until - time.monotonic()))
        after = trainer.said()
        durable = len(after.steps("durable")) - len(before.steps("durable"))
        if durable > 1:
            found.append(f"{durable} saves became durable on a disk that stood still")
        disk.go_on()
        trainer.wait_for_end(seconds + SECONDS_MAX)
    ended = trainer.said()
    tally.add("steps while it stood still", len(after.steps("skipped")))
    tally.time(f"{seconds:.0f} s stall", ended.stall_seconds_max or 0)
    if ended.steps("failed") or ended.newest_durable <= before.newest_durable:
        found.append(f"saving did not go on: {ended.lines[-3:]}")
    return found + stall_faults(ended) + _remounted_faults(disk, ended.newest_durable)


def stall_of_one_who_waits(disk: BlockDisk, draw: random.Random, tally: Tally) -> list[str]:
    """OnBusy::kBlock: by its design save() stands still with the disk; nothing is skipped or
    lost."""
    return _stall_of_one_who_blocks(disk, draw, tally, SHORT_STALL_SECONDS)


def long_stall_of_one_who_waits(disk: BlockDisk, draw: random.Random, tally: Tally) -> list[str]:
    """The same for a minute."""
    return _stall_of_one_who_blocks(disk, draw, tally, LONG_STALL_SECONDS)


def _stall_of_one_who_blocks(
    disk: BlockDisk, draw: random.Random, tally: Tally, seconds: float
) -> list[str]:
    disk.attach()
    with Running("block", disk.path / "run", "200") as trainer:
        trainer.must_say("durable")
        time.sleep(draw.uniform(0, 0.1))
        began = time.monotonic()
        disk.stall()
        time.sleep(QUIET_SECONDS)  # what had ended before is said by then
        before = trainer.said()
        time.sleep(seconds - QUIET_SECONDS)
        found = [] if trainer.said().lines == before.lines else ["it did not wait for the disk"]
        stood_still = len(before.steps("saved")) < 200
        tally.add("who stood still", stood_still)
        disk.go_on()
        stood = time.monotonic() - began
        trainer.wait_for_end()
    ended = trainer.said()
    if len(ended.steps("durable")) != 200:
        found.append(f"not all durable: {ended.lines[-3:]}")
    tally.time(f"{seconds:.0f} s stall, blocking by design", ended.stall_seconds_max or 0)
    # It waits from its next save() on, and then for what was in flight.
    least = seconds - QUIET_SECONDS if stood_still else 0
    found += stall_faults(ended, least, stood + SAVE_SECONDS_MAX)
    return found + _remounted_faults(disk, ended.newest_durable)


def slow(disk: BlockDisk, _: random.Random, tally: Tally) -> list[str]:
    """1 MB/s: what can't be written in time is skipped, what is called durable is."""
    disk.attach(*SLOW)
    ended = call("skip", disk.path / "run", str(STALL_STEPS))
    tally.add("skipped saves", len(ended.steps("skipped")))
    tally.time("1 MB/s", ended.stall_seconds_max or 0)
    found = stall_faults(ended)
    if ended.steps("failed") or not ended.steps("skipped") or not ended.steps("durable"):
        found.append(f"neither skipped nor durable: {ended.lines[-3:]}")
    return found + _remounted_faults(disk, ended.newest_durable)


def slow_for_one_who_waits(disk: BlockDisk, _: random.Random, tally: Tally) -> list[str]:
    """1 MB/s and OnBusy::kBlock: by its design each save() waits until the one before is there."""
    disk.attach(*SLOW)
    ended = call("block", disk.path / "run", str(SLOW_SAVES))
    tally.time("1 MB/s, blocking by design", ended.stall_seconds_max or 0)
    found = stall_faults(ended, most=SECONDS_MAX)
    if len(ended.steps("durable")) != SLOW_SAVES:
        found.append(f"not all durable: {ended.lines[-3:]}")
    return found + _remounted_faults(disk, ended.newest_durable)


def lying(disk: BlockDisk, draw: random.Random, tally: Tally) -> list[str]:
    """A disk that calls data synced and has lost it: other values never come back."""
    disk.attach()
    call("save", disk.path / "run", "3")
    disk.detach()
    written = disk.content()
    disk.attach()
    with Running("save", disk.path / "run", "1000") as trainer:
        trainer.must_say("durable", draw.randrange(1, 40))
    disk.cut_power()
    tally.add("lost blocks", disk.lose_some_since(written, draw))
    try:
        disk.attach()
    except DamagedError:
        tally.add("lost file systems")
        return []
    checked = call("check", disk.path / "run")
    tally.add("checkpoints that are good", len(checked.steps("good")))
    tally.add("refused", len(checked.steps("bad")))
    return faults_in(checked, 0, may_be_bad=True)


SCENARIOS: tuple[tuple[Scenario, int, int], ...] = (  # and how often: quick, else
    (errors, 2, 500),
    (stall, 1, 100),
    (stall_of_one_who_waits, 1, 100),
    (long_stall, 0, 5),
    (long_stall_of_one_who_waits, 0, 5),
    (slow, 1, 20),
    (slow_for_one_who_waits, 1, 20),
    (lying, 2, 500),
)


def one(scenario: Scenario, seed: int, place: Path, tally: Tally) -> list[str]:
    with BlockDisk(place) as disk:
        try:
            return scenario(disk, random.Random(seed), tally)
        except subprocess.TimeoutExpired as cause:
            return [f"it hangs: {cause}"]
        except EndedError as cause:
            return [f"it ended too soon: {cause}"]


def prove(options: argparse.Namespace, first_seed: int) -> Tally:
    """All that was asked for, a disk for each."""
    tally = Tally()
    chosen = [each for each in SCENARIOS if each[0].__name__ in options.only]
    for scenario, quick, thorough in chosen:
        count = quick if options.quick else thorough
        for number in range(count):
            seed = first_seed + number
            tally.add(scenario.__name__)
            with scratch(options, "df-disk") as place:
                broken = one(scenario, seed, Path(place), tally)
            tally.faults += [f"{scenario.__name__}, seed {seed}: {each}" for each in broken]
            progress(number + 1, count, scenario.__name__)
    return tally


def main(arguments: list[str]) -> int:
    names = [scenario.__name__ for scenario, _, _ in SCENARIOS]
    parser = make_parser(MODULE, __doc__)
    parser.add_argument("--quick", action="store_true", help="each kind a few times")
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    options = parser.parse_args(arguments)
    try:
        lacking = missing()
        if not lacking:
            have_mounts_of_our_own()
    except NotHereError as cause:
        lacking = str(cause)
    if lacking:
        return conclude(options, f"LEFT OUT: {lacking}", {"left_out": lacking}, [])
    seed = announce_seed(options)
    tally = prove(options, seed)
    tried = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in tally.tried.items())
    longest = ", ".join(f"{seconds:.3f} s ({name})" for name, seconds in tally.longest_save.items())
    timed = f"longest save() {longest}; " if longest else ""
    text = f"block device: {tried}; {timed}{len(tally.faults)} faults; seed {seed}"
    return conclude(options, text, {"seed": seed, **vars(tally)}, tally.faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
