"""Disks that stand still or crawl, below trainers that may skip and trainers that wait."""

from __future__ import annotations

import random
import time

from .block_disk import BlockDisk
from .disk_trial import Tally, remounted_faults
from .trainer import SECONDS_MAX, Running, Said, call

SLOW = (["rate"], ["rate=8M"])  # bits: 1 MB/s
STALL_STEPS = 100  # while the disk stands still, at least
SLOW_SAVES = 5
STEP_SECONDS = 0.005  # of faults_trainer, or longer
QUIET_SECONDS = 0.5
SHORT_STALL_SECONDS = 3.0
LONG_STALL_SECONDS = 60.0
# The longest save() of a trainer that may skip, whatever the disk does. It takes some milliseconds;
# the rest is for a busy machine. Less than any of the stalls, so that a waiting one is found.
SAVE_SECONDS_MAX = 1.0


def stall_faults(ended: Said, least: float = 0, most: float = SAVE_SECONDS_MAX) -> list[str]:
    """The bounds that its longest save() breaks."""
    longest = ended.stall_seconds_max
    if longest is None:
        return [f"it did not say how long its saves took: {ended.lines[-3:]}"]
    if not least <= longest <= most:
        return [f"a save() took {longest} s: not between {least} and {most}"]
    return []


def stall(disk: BlockDisk, draw: random.Random, tally: Tally) -> list[str]:
    """The disk stands still: training goes on, and when it goes on all is as it was."""
    return _stall_of_one_who_skips(disk, draw, tally, SHORT_STALL_SECONDS)


def long_stall(disk: BlockDisk, draw: random.Random, tally: Tally) -> list[str]:
    """A stall of a minute, for a trainer that skips."""
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
        time.sleep(QUIET_SECONDS)  # earlier saves have reported their end by then
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
    return found + stall_faults(ended) + remounted_faults(disk, ended.newest_durable)


def stall_of_one_who_waits(disk: BlockDisk, draw: random.Random, tally: Tally) -> list[str]:
    """OnBusy::kBlock: by its design save() stands still with the disk; nothing is skipped or
    lost."""
    return _stall_of_one_who_blocks(disk, draw, tally, SHORT_STALL_SECONDS)


def long_stall_of_one_who_waits(disk: BlockDisk, draw: random.Random, tally: Tally) -> list[str]:
    """A stall of a minute, for a trainer that waits."""
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
        time.sleep(QUIET_SECONDS)  # earlier saves have reported their end by then
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
    # It waits from its next save() on, and then for the save in flight.
    least = seconds - QUIET_SECONDS if stood_still else 0
    found += stall_faults(ended, least, stood + SAVE_SECONDS_MAX)
    return found + remounted_faults(disk, ended.newest_durable)


def slow(disk: BlockDisk, _: random.Random, tally: Tally) -> list[str]:
    """1 MB/s: saves that come too soon are skipped, those called durable are durable."""
    disk.attach(*SLOW)
    ended = call("skip", disk.path / "run", str(STALL_STEPS))
    tally.add("skipped saves", len(ended.steps("skipped")))
    tally.time("1 MB/s", ended.stall_seconds_max or 0)
    found = stall_faults(ended)
    if ended.steps("failed") or not ended.steps("skipped") or not ended.steps("durable"):
        found.append(f"neither skipped nor durable: {ended.lines[-3:]}")
    return found + remounted_faults(disk, ended.newest_durable)


def slow_for_one_who_waits(disk: BlockDisk, _: random.Random, tally: Tally) -> list[str]:
    """1 MB/s and OnBusy::kBlock: by its design each save() waits until the one before is there."""
    disk.attach(*SLOW)
    ended = call("block", disk.path / "run", str(SLOW_SAVES))
    tally.time("1 MB/s, blocking by design", ended.stall_seconds_max or 0)
    found = stall_faults(ended, most=SECONDS_MAX)
    if len(ended.steps("durable")) != SLOW_SAVES:
        found.append(f"not all durable: {ended.lines[-3:]}")
    return found + remounted_faults(disk, ended.newest_durable)
