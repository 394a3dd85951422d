"""Of the runs that are too long for one night: what they have done in parts, by their own records.

A row of such a run stands in tests/torture.md until `make torture` has done it as a whole.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FUZZ = "tests/fuzz/record.json"
MUTANTS = "tests/mutants.json"


def fuzz(record: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Of `tests/fuzz/run.py --record`, which forgets a target's time when something is found."""
    least = min((each["minutes"] for each in record.values()), default=0)
    executions = sum(each["executions"] for each in record.values())
    return {
        "passed": bool(record) and least > 0,
        "found": [
            f"{len(record)} targets, {executions} inputs, none with findings since, each for at"
            f" least {least:g} minutes; {FUZZ}"
        ],
        "seconds": round(60 * sum(each["minutes"] for each in record.values())),
        "date": max((str(each["last"]) for each in record.values()), default=""),
    }


def mutants(verdicts: list[dict[str, Any]]) -> dict[str, Any]:
    """Of `tools/mutants.py --again FILE --json FILE`: each site by the sources it was tried in."""
    unnoticed = sum(not each["noticed_by"] for each in verdicts)
    return {
        "passed": bool(verdicts) and unnoticed == 0,
        "found": [f"{len(verdicts)} sites left out in turn, {unnoticed} unnoticed; {MUTANTS}"],
        "seconds": None,
        "date": "",
    }


def recorded() -> dict[str, dict[str, Any]]:
    """By the run's name."""
    return {
        "fuzz": fuzz(json.loads((ROOT / FUZZ).read_text())),
        "mutants": mutants(json.loads((ROOT / MUTANTS).read_text())),
    }
