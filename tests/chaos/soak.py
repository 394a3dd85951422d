"""Chaos: `python -m tests.chaos.soak --minutes 60 [--seed S] [--json]`.

On one run directory, all at once: a trainer that is killed, stopped and overtaken, that meets
failing and full disks and goes back; the command-line program in a loop; two readers that load
the newest again and again. Files are damaged. An oracle knows every byte, every acknowledgement and
damage. Any result that it does not expect ends the soak, with the seed and the last events, and the
run stays.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from dataclasses import asdict, dataclass, field
from statistics import median

import torch._dynamo  # noqa: F401  an optimizer's first use imports it: once, not in every child

from tests.e2e.command import announce_seed, conclude, make_parser, progress

from .acts import Acts
from .children import ViolationError, compile_once
from .small_disk import SmallDisk
from .supervisor import Supervisor
from .workplace import Workplace, workplace

MODULE = "tests.chaos.soak"
LIES = ("byte", "early", "damage", "leak")  # negative controls
SAMPLES = 48
SAMPLES_MIN = 9  # else growth would say nothing: a soak takes longer on a busy machine
WARM_UP_SHARE = 0.25
FIRST_LIVES = 2  # before the readers and the commands begin

# A reader's growth from the first third of the samples after the warm-up to the last, by medians.
# heap: the errors that it was given last; rss: one arena of Python's allocator, late code, and
# the listing of a run with thousands of claims (each life adds one).
GROWTH_MAX = {"heap_bytes": 16 << 10, "rss_bytes": 4 << 20, "descriptors": 0, "threads": 1}


@dataclass
class Soak:
    """The results of one soak."""

    seed: int
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    saves: dict[str, int] = field(default_factory=dict)
    restores: dict[str, int] = field(default_factory=dict)
    commands: dict[str, int] = field(default_factory=dict)
    growth: dict[str, int] = field(default_factory=dict)
    disk_bytes: list[int] = field(default_factory=list)
    checkpoint_bytes: int = 0
    claims: int = 0
    left_out: list[str] = field(default_factory=list)
    last_events: list[str] = field(default_factory=list)  # before a violation
    faults: list[str] = field(default_factory=list)


def growth(values: list[int]) -> int:
    """From the first third after the warm-up to the last."""
    values = values[int(WARM_UP_SHARE * len(values)) :]
    third = max(1, len(values) // 3)
    return int(median(values[-third:]) - median(values[:third])) if values else 0


def fewest_samples(on: Supervisor) -> int:
    """The number of samples of the reader that has fewest."""
    return min(len(reader.curve) for reader in on.readers)


def grown(on: Supervisor, name: str) -> int:
    """The growth of the reader that has grown most."""
    return max(
        (growth([getattr(each, name) for each in reader.curve]) for reader in on.readers), default=0
    )


def let_loose(on: Supervisor, acts: Acts, seconds: float) -> None:
    """Acts until the time is over; samples at equal distances."""
    began = time.monotonic()
    for _ in range(FIRST_LIVES):
        acts.ended_well()
    on.start_readers()
    on.go_on()
    while (passed := time.monotonic() - began) < seconds or fewest_samples(on) < SAMPLES_MIN:
        acts.next()
        for reader in on.readers:
            if passed >= len(reader.curve) * seconds / SAMPLES:
                reader.sample_due = True
        progress(int(passed), int(seconds), f"s, {on.counts['lives']} lives")
    acts.tidied()
    on.commands.paused = True
    on.must(lambda: on.commands.idle, "the last command")


def carry_out(seed: int, seconds: float, lie: str, place: Workplace) -> Soak:
    """Runs the soak in `place`, which is kept if something was violated."""
    compile_once(place.path)
    soak = Soak(seed)
    disk: SmallDisk | None = SmallDisk(place.path)
    assert disk is not None
    if why := disk.mount():
        soak.left_out.append(f"a full disk: {why}")
        disk = None
    run = (disk.path if disk else place.path) / "run"
    on = Supervisor(run, place.path, seed, lie)
    on.commands.paused = True
    began = time.monotonic()
    try:
        let_loose(on, Acts(on, disk), seconds)
    except ViolationError as violation:
        soak.faults.append(str(violation))
        soak.last_events = list(on.tail)
    finally:
        soak.seconds = round(time.monotonic() - began, 1)
        on.close()
        note_figures(soak, on)
    if not soak.faults:
        soak.faults += flatness_faults(soak)
    if soak.faults:
        place.keep = True
        if disk:  # it goes with this process
            shutil.copytree(run, place.path / "run", symlinks=True)
    if disk:
        disk.unmount()
    return soak


def note_figures(soak: Soak, on: Supervisor) -> None:
    soak.counts = dict(sorted(on.counts.items()))
    soak.saves = {"durable": on.saves_durable, **dict(on.failures)}
    soak.restores = {"in all": on.oracle.restored, "fell back": on.oracle.fell_back}
    soak.commands = dict(sorted(on.commands.outcomes.items()))
    soak.growth = {name: grown(on, name) for name in GROWTH_MAX}
    soak.disk_bytes = on.disk_curve
    soak.checkpoint_bytes = on.world.state_bytes()
    soak.claims = len(list(on.run.glob("generation-*.json")))


def flatness_faults(soak: Soak) -> list[str]:
    faults = [
        f"a reader's {name} grew by {soak.growth[name]}, more than {most}"
        for name, most in GROWTH_MAX.items()
        if soak.growth[name] > most
    ]
    if growth(soak.disk_bytes) > 2 * soak.checkpoint_bytes:
        faults.append(f"the run grew by {growth(soak.disk_bytes)} bytes: {soak.disk_bytes}")
    return faults


def describe(soak: Soak) -> str:
    rows = [("seconds", f"{soak.seconds:.0f}, seed {soak.seed}")]
    for name in ("counts", "saves", "restores", "commands"):
        figures: dict[str, int] = getattr(soak, name)
        rows.append((name, ", ".join(f"{count} {what}" for what, count in figures.items())))
    rows.append(("readers grew by", ", ".join(f"{n} {name}" for name, n in soak.growth.items())))
    if soak.disk_bytes:
        last = soak.disk_bytes[-1] / 1e6
        rows.append(("disk", f"{last:.2f} MB at the end, {growth(soak.disk_bytes)} bytes grown"))
    rows.append(("claims", str(soak.claims)))
    rows.append(("invariants", "VIOLATED" if soak.faults else "hold"))
    rows += [("LEFT OUT", each) for each in soak.left_out]
    text = "\n".join(f"{name:<16}{value}" for name, value in rows)
    return "\n".join([text, *soak.last_events])


def main(arguments: list[str]) -> int:
    parser = make_parser(MODULE, __doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--lie", choices=LIES, default="", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    seed = announce_seed(options)
    with workplace(options.directory, "chaos") as place:
        soak = carry_out(seed, 60 * options.minutes, options.lie, place)
    return conclude(options, describe(soak), asdict(soak), soak.faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
