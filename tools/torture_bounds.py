"""How many trials each promise of docs/guarantees.md has had, and the bound that they give.

The table there is written from tests/torture.json, between two marks, whenever a long run ends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

BEGIN = "<!-- written by tools/torture.py --table: begin -->"
END = "<!-- end -->"


@dataclass(frozen=True)
class Trials:
    """The trials of one promise by one run: their description, and a pattern for their counts."""

    promise: str
    run: str
    what: str
    counts: str  # a pattern; the sum of its groups is n


ALL = (
    Trials("durability, atomicity, debris", "crash", "states after a simulated power cut",
           r"(\d+) states"),
    Trials("durability, atomicity", "power", "power cuts on ext4 and XFS", r"(\d+) cuts"),
    Trials("durability, atomicity", "kills", "processes killed", r"^kills +(\d+)"),
    Trials("durability, atomicity", "chaos", "acknowledged saves, everything at once",
           r"(\d+) durable"),
    Trials("durability, atomicity", "rank_faults", "ranks killed or stopped",
           r"in (\d+) a rank was killed, in (\d+) stopped"),
    Trials("integrity, fallback", "corruption", "damages to files", r"(\d+) damages"),
    Trials("integrity, fallback", "corruption", "of them single flipped bits",
           r"(\d+) single bits flipped"),
    Trials("integrity, fallback", "corruption", "bytes of header and manifest, flipped and cut",
           r"(\d+) bytes of header"),
    Trials("integrity, fallback", "corruption", "bits flipped in memory after the capture",
           r"(\d+) bits of the arena"),
    Trials("no harm", "errors", "operations and reads that fail",
           r"(\d+) failures of operations, (\d+) of reads|(\d+) failures of|(\d+) operations"),
    Trials("no harm", "system_calls", "system calls that fail or are the last",
           r"system calls: (\d+)"),
    Trials("no harm", "block_device", "disks that fail, stall, crawl or lie",
           r"(\d+) (?:(?:some |some buffered |some journal |read )?errors"
           r"|(?:long )?stall(?: of one who waits)?|slow(?: for one who waits)?|lying),"),
    Trials("no harm", "memory", "processes killed for want of memory", r"memory: (\d+)"),
    Trials("tiers", "tier_faults", "files of the newest step damaged on one of three tiers",
           r"(\d+) faults on one tier"),
    Trials("tiers", "tier_faults", "the same damage on all three tiers",
           r"(\d+) faults on all tiers"),
    Trials("tiers", "object_kills", "kills of an object store in flushes",
           r"object kills: (\d+) before the store acted and (\d+) after"),
    Trials("tiers", "object_flips", "bits flipped near, on the way, and in an object store",
           r"object flips: (\d+)"),
    Trials("shared files", "links", "states after a simulated power cut", r"links: (\d+) states"),
    Trials("shared files", "cold_flips", "bits flipped in a shared file, three steps read",
           r"cold flips: (\d+)"),
    Trials("replicas", "audit", "flipped bits", r"audit: (\d+) of"),
)  # fmt: skip


def count(trials: Trials, found: list[str]) -> int:
    groups = [each for line in found for match in re.finditer(trials.counts, line)
              for each in match.groups() if each]  # fmt: skip
    return sum(map(int, groups))


def row(trials: Trials, result: Mapping[str, Any] | None) -> str:
    head = f"| {trials.promise} | {trials.what} | `{trials.run}` |"
    if result is None:
        return f"{head} **never recorded** | | | |"
    n = count(trials, result["found"])
    when = f"{result['date']} | {result['commit']} |"
    if not result["passed"]:
        return f"{head} **failed** | | {when}"
    return f"{head} {n:,} | {3 / n:.1e} | {when}" if n else f"{head} not counted by then | | {when}"


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [
        "| promise | trials | run | n, none failed | rate at most, 3/n (95 %) | date | commit |",
        "|---|---|---|---|---|---|---|",
        *(row(trials, results.get(trials.run)) for trials in ALL),
    ]
    return "\n".join(lines)


def written_into(page: str, results: Mapping[str, Mapping[str, Any]]) -> str:
    """The page with its table anew."""
    before, _, rest = page.partition(BEGIN)
    old, _, after = rest.partition(END)
    if not old:
        raise ValueError(f"{BEGIN!r} and {END!r} are missing")
    return f"{before}{BEGIN}\n{table(results)}\n{END}{after}"
