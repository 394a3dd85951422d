"""Runs that are too long for one night: the parts that are done, by their own records.

A row of such a run is in tests/torture.md until `make torture` has done it as a whole. It has
passed if each fuzz target of today, or each site, has its record, and none of them a finding.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import mutant_tree
import mutants
import mutants_python

ROOT = Path(__file__).resolve().parents[1]
FUZZ = "tests/fuzz/record.json"
MUTANTS = "tests/mutants.json"
MUTANTS_PYTHON = "tests/mutants_python.json"
MINUTES_MIN = 30  # that each target must have run


def fuzz_targets() -> set[str]:
    names = {path.name for path in (ROOT / "tests/fuzz").glob("*_target.cc")} - {"fuzz_target.cc"}
    return {name.removesuffix("_target.cc") for name in names}


def fuzz(record: dict[str, dict[str, Any]], targets: set[str]) -> dict[str, Any]:
    """The record of `tests/fuzz/run.py --record`; a finding resets a target's time."""
    known = [record[name] for name in sorted(targets & record.keys())]
    done = sum(each["minutes"] >= MINUTES_MIN for each in known)
    executions = sum(each["executions"] for each in known)
    return {
        "passed": done == len(targets),
        "found": [
            f"{done} of {len(targets)} targets for at least {MINUTES_MIN} minutes"
            f" since the last finding, {executions} inputs; {FUZZ}"
        ],
        "seconds": round(60 * sum(each["minutes"] for each in known)),
        "date": min((str(each["last"]) for each in known), default=""),  # of the oldest part
    }


def needed_sites() -> Counter[tuple[str, str]]:
    """Sites of today's sources that no entry excuses, by file and text."""
    edits = mutant_tree.find_edits(ROOT)
    labels, idle = mutants.labels(edits), mutants.idle_sites()
    return Counter(
        (edit.site.path, edit.site.text) for number, edit in edits if labels[number] not in idle
    )


def left_out(
    noticed: Counter[tuple[str, str]], needed: Counter[tuple[str, str]], file: str
) -> dict[str, Any]:
    """The record of `tools/mutants.py --again FILE --json FILE`: a site counts for its sources."""
    count, of = (noticed & needed).total(), needed.total()
    return {
        "passed": count == of,
        "found": [f"{count} of {of} sites left out in turn and noticed; {file}"],
        "seconds": None,
        "date": "",
    }


def recorded() -> dict[str, dict[str, Any]]:
    """The records by the run's name."""
    return {
        "fuzz": fuzz(json.loads((ROOT / FUZZ).read_text()), fuzz_targets()),
        "mutants": left_out(mutants.noticed_before(ROOT / MUTANTS), needed_sites(), MUTANTS),
        "mutants_python": left_out(
            Counter(mutants_python.noticed_before(ROOT / MUTANTS_PYTHON).keys()),
            Counter((one.path, one.text) for _, one in mutants_python.mutants("")),
            MUTANTS_PYTHON,
        ),
    }
