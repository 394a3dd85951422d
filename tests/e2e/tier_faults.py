"""Faults on tiers: `python -m tests.e2e.tier_faults --faults 2000 [--seed S] [--json]`.

A run lies on three tiers. One file of its newest step is damaged on one of them: a flipped bit, a
missing file, a file that is cut off, another step's file under its name. A restore must give the
newest step bit for bit, and the bad copy must be healed: afterwards all tiers are the same again,
byte for byte. Half as many trials do the same damage on all tiers: then the step before is
restored, and the report says why. A tenth as many damage a record of the run (`deepfreeze.json` or
a claim) on one tier: the newest step is restored.
"""

from __future__ import annotations

import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import deepfreeze as df

from .command import announce_seed, conclude, make_parser, progress, scratch
from .detection import exact, other_state, truth
from .stored_file import BLOCK_BYTES
from .tier_damage import (
    BEFORE,
    CUT,
    FLIPPED,
    MISSING,
    NEWEST,
    OTHER,
    SECONDS,
    STEPS,
    TIERS,
    Damage,
    Fault,
    Master,
    copy_of,
    draw_fault,
    files_of,
    make_master,
    opened,
)


@dataclass
class Tally:
    """The trials of one series."""

    trials: int = 0
    whole: int = 0  # no promise was broken
    damages: Counter[str] = field(default_factory=Counter)


@dataclass
class Result:
    """All trials, and those that went wrong."""

    seed: int
    tallies: dict[str, Tally] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def restore(tiers: list[Path], wanted: int) -> tuple[df.RestoreReport | None, list[str]]:
    """The report, and the faults of the values. Returns when the tiers are mended."""
    state = other_state()
    with opened(*tiers) as ckpt:
        step = ckpt.restore(state)
        report = ckpt.last_restore
        ckpt.drain(SECONDS)
    found = [] if step == wanted else [f"restored step {step} instead of {wanted}"]
    if step not in STEPS or exact(state) != truth(step):
        found.append(f"wrong values for step {step}")
    if report is None or report.step != step:
        found.append(f"the report is {report}")
    return report, found


def broken_by_one(master: Master, fault: Fault, bad: int, place: Path) -> list[str]:
    """The promises that a fault on one tier breaks."""
    tiers = copy_of(master, place)
    fault.put_on(tiers[bad])
    report, found = restore(tiers, NEWEST)
    if report is not None and report.fell_back_from:
        found.append(f"it fell back: {report.fell_back_from}")
    is_read = fault.part in ("data", "header")
    if is_read and bad > 0:
        # At home nobody reads a farther copy. A machine without the nearest tier does.
        others = [tier for tier in tiers[1:] if tier != tiers[bad]]
        report, more = restore([place / "elsewhere", tiers[bad], *others], NEWEST)
        found += more
    if is_read:
        found += wrong_mention(report, tiers[bad] / fault.file)
    if fault.part == "record":  # no checkpoint depends on it alone
        return found
    differing = [tier.name for tier in tiers if files_of(tier) != master.files]
    return found + [f"not healed: {name}" for name in differing]


def wrong_mention(report: df.RestoreReport | None, bad: Path) -> list[str]:
    """The bad copy must be named, and no other."""
    named = [] if report is None else list(report.mended)
    return [] if named == [str(bad)] else [f"mended is {named}, not {bad}"]


def broken_by_all(master: Master, fault: Fault, _: int, place: Path) -> list[str]:
    """The promises that the same fault on all tiers breaks."""
    tiers = copy_of(master, place)
    for tier in tiers:
        fault.put_on(tier)
    state = other_state()
    with opened(*tiers) as ckpt:
        step = ckpt.restore(state)
        report = ckpt.last_restore
    if step != BEFORE or exact(state) != truth(BEFORE):
        return [f"restored step {step}, and not {BEFORE} as it was"]
    if report is None or [passed for passed, _ in report.fell_back_from] != [NEWEST]:
        return [f"the report is {report}"]
    ((_, why),) = report.fell_back_from
    return [] if all(part in why for part in reason(master, fault)) else [f"it says: {why}"]


def reason(master: Master, fault: Fault) -> list[str]:
    """Parts of the report's reason: the file, and the fault in it."""
    if fault.part == "manifest":
        other = "it is of attempt" if fault.kind == OTHER else "manifest: "
        return [master.manifest, other]
    block = f"block {fault.offset // BLOCK_BYTES} " if fault.part == "data" else "header"
    said = {
        MISSING: "missing",
        CUT: f"it has {len(fault.content or b'')} bytes, the manifest says",
        OTHER: "header checksum differs from the manifest",
        FLIPPED: block,
    }
    return [Path(fault.file).name, said[fault.kind]]


@dataclass(frozen=True)
class Series:
    """Trials of one sort."""

    name: str
    damages: tuple[Damage, ...]
    means: str  # if nothing is broken
    broken: Callable[[Master, Fault, int, Path], list[str]]
    share: float  # of the faults that are asked for


DAMAGES = (
    *(("data", kind) for kind in (FLIPPED, MISSING, CUT, OTHER)),
    *(("header", kind) for kind in (FLIPPED, CUT)),
    *(("manifest", kind) for kind in (FLIPPED, MISSING, CUT, OTHER)),
)
# Without a manifest on any tier a step is one that was never committed: nothing is to be said.
TOLD = tuple(each for each in DAMAGES if each != ("manifest", MISSING))
OF_RECORDS = tuple(("record", kind) for kind in (FLIPPED, MISSING, CUT, OTHER))
ON_ONE = Series(
    "on one tier", DAMAGES, "restored the newest step and were healed", broken_by_one, 1.0
)
ON_ALL = Series("on all tiers", TOLD, "restored the step before and said why", broken_by_all, 0.5)
IN_RECORD = Series(
    "in a record on one tier", OF_RECORDS, "restored the newest step", broken_by_one, 0.1
)
ALL_SERIES = (ON_ONE, ON_ALL, IN_RECORD)


def try_series(series: Series, master: Master, number: int, place: Path, result: Result) -> None:
    """One trial, with a seed of its own."""
    draw = random.Random(f"{result.seed} {series.name} {number}")
    fault = draw_fault(master, draw, series.damages)
    bad = draw.randrange(len(TIERS))
    try:
        broken = series.broken(master, fault, bad, place)
    except df.CheckpointError as error:
        broken = [f"refused: {error!r}"]
    shutil.rmtree(place)
    tally = result.tallies.setdefault(series.name, Tally())
    tally.trials += 1
    tally.whole += not broken
    tally.damages[f"{fault.part} {fault.kind}"] += 1
    trial = f"seed {result.seed}, trial {number} {series.name}, {fault}, {TIERS[bad]}"
    result.problems += [f"{trial}: {each}" for each in broken]


def prove(faults: int, seed: int, directory: Path) -> Result:
    master = make_master(directory / "master")
    result = Result(seed)
    for series in ALL_SERIES:
        count = int(series.share * faults)
        for number in range(count):
            try_series(series, master, number, directory / "trial", result)
            progress(number + 1, count, f"faults {series.name}")
    if any(files_of(master.root / tier) != master.files for tier in TIERS):
        result.problems.append("a file of the undamaged run was written to")
    return result


def report_of(result: Result) -> str:
    lines = []
    for series in ALL_SERIES:
        tally = result.tallies[series.name]
        damages = ", ".join(f"{count} {each}" for each, count in sorted(tally.damages.items()))
        lines += [
            f"tier faults: {tally.trials} faults {series.name}: {tally.whole} {series.means}",
            f"  {damages}",
        ]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    parser = make_parser("tests.e2e.tier_faults", __doc__)
    parser.add_argument("--faults", type=int, default=2000, help="on one tier")
    options = parser.parse_args(arguments)
    seed = announce_seed(options)
    with scratch(options, "tier-faults") as directory:
        result = prove(options.faults, seed, Path(directory))
    tallies = {name: vars(tally) for name, tally in result.tallies.items()}
    figures = {"seed": seed, "tallies": tallies, "problems": result.problems}
    return conclude(options, report_of(result), figures, result.problems)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
