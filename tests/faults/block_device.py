"""A disk that fails, stalls, is slow or lies, below a real trainer: `python -m
tests.faults.block_device`.

Afterwards the file system is repaired and mounted again, and every promise is looked at. Exit
status 1 if one was broken. `--quick` tries each kind a few times.
"""

from __future__ import annotations

import argparse
import errno
import mmap
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from tests.e2e.command import announce_seed, conclude, make_parser, progress, scratch

from .block_disk import (
    DISK_BYTES,
    BlockDisk,
    DamagedError,
    NotHereError,
    have_mounts_of_our_own,
    missing,
)
from .disk_stalls import (
    long_stall,
    long_stall_of_one_who_waits,
    slow,
    slow_for_one_who_waits,
    stall,
    stall_of_one_who_waits,
)
from .disk_trial import Scenario, Tally, remounted_faults
from .trainer import EndedError, Running, call, faults_in

MODULE = "tests.faults.block_device"
FAILING = ["error"]  # with EIO
WRITE_ERROR_RATES = (5, 20, 50)  # per cent
READ_ERROR_RATES = (5, 30, 100)  # per cent
WRITES = 200
WRITE_BYTES_MAX = 128 << 10
KEPT = 2  # checkpoints, by faults_trainer


def errors(disk: BlockDisk, draw: random.Random, tally: Tally) -> list[str]:
    """Every write fails until a save has, and some milliseconds more; the trainer outlives it."""
    disk.attach(FAILING, ["error-pwrite-rate=100%", f"error-file={disk.trigger}"])
    mode = {"DEEPFREEZE_IO": draw.choice(("", "buffered"))}
    with Running("save", disk.path / "run", "200", environment=mode) as trainer:
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
    return found + remounted_faults(disk, ended.newest_durable)


def some_errors(disk: BlockDisk, draw: random.Random, tally: Tally) -> list[str]:
    """Some writes fail, but none of ext4's journal, until some saves have. Then the trainer is
    killed, so that no later save takes the place of one that was called durable wrongly."""
    disk.have_a_journal_that_never_fails()
    return _some_errors(disk, draw, tally, "", errno.EIO)


def some_buffered_errors(disk: BlockDisk, draw: random.Random, tally: Tally) -> list[str]:
    """Errors behind the page cache: only fsync tells of accepted writes, and only once."""
    disk.have_a_journal_that_never_fails()
    return _some_errors(disk, draw, tally, "buffered", errno.EIO)


def some_journal_errors(disk: BlockDisk, draw: random.Random, tally: Tally) -> list[str]:
    """Errors of any writes: mostly the journal's is the first, and ext4 writes nothing more."""
    return _some_errors(disk, draw, tally, "", errno.EROFS)


def _some_errors(
    disk: BlockDisk, draw: random.Random, tally: Tally, mode: str, cause: int
) -> list[str]:
    rate = draw.choice(WRITE_ERROR_RATES)
    disk.attach(FAILING, [f"error-pwrite-rate={rate}%", f"error-file={disk.trigger}"])
    with Running(
        "save", disk.path / "run", "10000", environment={"DEEPFREEZE_IO": mode}
    ) as trainer:
        trainer.must_say("durable", draw.randrange(1, 40))
        disk.trigger.touch()
        trainer.must_say("failed", draw.randrange(1, 4))
        time.sleep(draw.uniform(0, 0.02))
    ended = trainer.said()
    text = os.strerror(cause)
    failed = [line for line in ended.lines if line.startswith("failed") and text in line]
    tally.add(f"{mode} saves failed with {errno.errorcode[cause]}".strip(), len(failed))
    return remounted_faults(disk, ended.newest_durable)


def honest(disk: BlockDisk, draw: random.Random, tally: Tally) -> list[str]:
    """Checks this disk itself, on which all the others rest: data that it calls written is
    written, though some writes fail before it and after it."""
    disk.attach_unmounted(FAILING, ["error-pwrite-rate=30%", f"error-file={disk.trigger}"])
    disk.trigger.touch()
    sector = disk.sector_bytes()
    found = []
    file = os.open(disk.device, os.O_RDWR | os.O_DIRECT)
    try:
        for _ in range(WRITES):
            offset = draw.randrange(0, DISK_BYTES - WRITE_BYTES_MAX, sector)
            data = draw.randbytes(draw.randrange(sector, WRITE_BYTES_MAX, sector))
            taken = _write_direct(file, offset, data)
            tally.add("writes that the disk takes" if taken else "writes that it refuses")
            if taken and disk.content_at(offset, len(data)) != data:
                found.append(f"{len(data)} bytes at {offset} are called written and are not")
    finally:
        os.close(file)
    return found


def _write_direct(file: int, offset: int, data: bytes) -> bool:
    """False if the disk refuses it; OSError if it fails for another cause."""
    with mmap.mmap(-1, len(data)) as pages:  # page-aligned, as it must be
        pages[:] = data
        try:
            return os.pwrite(file, pages, offset) == len(data)
        except OSError as cause:
            if cause.errno != errno.EIO:
                raise
            return False


def read_errors(disk: BlockDisk, _: random.Random, tally: Tally) -> list[str]:
    """Reads fail, some or all: a checkpoint is refused or right, and afterwards all are there."""
    disk.attach()
    saved = call("save", disk.path / "run", "3")
    disk.detach()
    found = [] if saved.steps("durable") == [1, 2, 3] else [f"not saved: {saved.lines[-3:]}"]
    for rate in READ_ERROR_RATES:
        disk.attach(FAILING, [f"error-pread-rate={rate}%", f"error-file={disk.trigger}"])
        disk.trigger.touch()
        checked = call("check", disk.path / "run")
        disk.detach()  # so that no cache has data that was read
        tally.add("refused for reads", sum(map(_is_refusal, checked.lines)))
        found += faults_in(checked, 0, may_be_bad=True)
        if not any(line.startswith("refused") for line in checked.lines):  # the whole run
            found += _of_other_number(len(checked.steps("good")) + len(checked.steps("bad")))
    disk.attach()
    found += _of_other_number(len(call("check", disk.path / "run").steps("good")))
    return found + remounted_faults(disk, saved.newest_durable)


def _is_refusal(line: str) -> bool:
    return line.startswith(("bad", "refused"))


def _of_other_number(count: int) -> list[str]:
    return [] if count == KEPT else [f"{count} checkpoints are listed, not {KEPT}"]


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
    (honest, 1, 20),
    (errors, 2, 500),
    (some_errors, 5, 500),
    (some_buffered_errors, 5, 1000),
    (some_journal_errors, 5, 500),
    (read_errors, 1, 100),
    (stall, 1, 100),
    (stall_of_one_who_waits, 1, 100),
    (long_stall, 0, 5),
    (long_stall_of_one_who_waits, 0, 5),
    (slow, 1, 20),
    (slow_for_one_who_waits, 1, 20),
    (lying, 2, 500),
)


def one(scenario: Scenario, seed: int, options: argparse.Namespace, tally: Tally) -> list[str]:
    try:
        with scratch(options, "df-disk") as place, BlockDisk(Path(place)) as disk:
            return scenario(disk, random.Random(seed), tally)
    except subprocess.TimeoutExpired as cause:
        return [f"it hangs: {cause}"]
    except EndedError as cause:
        return [f"it ended too soon: {cause}"]
    except DamagedError as cause:
        return [f"the file system is lost: {cause}"]
    except OSError as cause:  # no fault of the product, but this trial shows nothing
        return [f"the disk itself: {cause}"]


def prove(options: argparse.Namespace, first_seed: int) -> Tally:
    """All that was asked for, a disk for each."""
    tally = Tally()
    chosen = [each for each in SCENARIOS if each[0].__name__ in options.only]
    for scenario, quick, thorough in chosen:
        count = quick if options.quick else thorough
        for number in range(count):
            seed = first_seed + number
            tally.add(scenario.__name__)
            broken = one(scenario, seed, options, tally)
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
