"""The things that measured a study: its runs, their machines, code and packages."""

from collections.abc import Mapping
from typing import Any

from lab.measure import versions
from lab.measure.journal import ALIKE, DATE, RESUMED, STAMPS
from lab.report.summary import Study


def where(study: Study) -> str:
    """One machine and one time only where no run after the first says otherwise."""
    inside = "processors, device and what else was done there are in every time."
    count, unlike = len(sittings(study)), differing(study)
    if unlike:
        return (
            f"Not one machine at one time, by one code: its {count} runs differ in "
            f"{', '.join(unlike)}, and the {inside}"
        )
    return f"One machine, at {'one time' if count == 1 else f'{count} times'}: its {inside}"


# The versions of the packages that rows were made with.


def packages(study: Study) -> dict[str, tuple[str, ...]]:
    """By package, in order, all versions that rows tell."""
    found: dict[str, set[str]] = {}
    for row in study.rows:
        for name, version in versions.read(row).items():
            found.setdefault(name, set()).add(version)
    return {name: tuple(sorted(found[name])) for name in sorted(found)}


def told(study: Study) -> str:
    """Which, and of how many rows that is known: older ones do not say."""
    found = packages(study)
    if not found:
        return ""
    count = sum(bool(row.get("versions")) for row in study.rows)
    shown = ", ".join(f"{name} {' and '.join(some)}" for name, some in found.items())
    return f"Packages, as {count:,} of {len(study.rows):,} rows tell: {shown}."


def unlike(first: Study, second: Study) -> list[tuple[str, str, str]]:
    """Package and both versions, of those that both tell."""
    one, other = packages(first), packages(second)
    return [
        (name, " and ".join(one[name]), " and ".join(other[name]))
        for name in one if name in other and one[name] != other[name]
    ]  # fmt: skip


# The runs that a study was measured in: when, on which machine, by which code.


COMMIT = "commit"
Sitting = Mapping[str, Any]


def sittings(study: Study) -> list[Sitting]:
    """That in which it began, and those in which it was gone on with."""
    return [study.about.get("machine", {}), *study.about.get(RESUMED, [])]


def values(study: Study, name: str) -> list[Any]:
    """That its runs have: one where they have it alike."""
    return list(dict.fromkeys(one.get(name) for one in sittings(study)))


def differing(study: Study) -> list[str]:
    return [name for name in ALIKE if len(values(study, name)) > 1]


def on_one_machine(study: Study) -> bool:
    return set(differing(study)) <= {COMMIT}


def later(study: Study) -> str:
    """Each run after the first, as far as rows tell of it; empty if there was none."""
    _, *again = sittings(study)
    if not again:
        return ""
    told = "; ".join(described(one) + rows_of(study, one) for one in again)
    what = "What had no row by then was run, also where rows had been taken out."
    return f" Continued at {told}. {what}{untold(study)}"


def described(one: Sitting) -> str:
    known = [str(one[name]) for name in ("cpu", "kernel") if one.get(name)]
    return f"{one.get(DATE)} ({', '.join([f'commit {one.get(COMMIT)}', *known])})"


def rows_of(study: Study, one: Sitting) -> str:
    """Two runs may have the same commit and processor: so nothing more is said of them."""
    rows = [row for row in study.rows if all(row.get(name) == one.get(name) for name in STAMPS)]
    names = dict.fromkeys(str(row["experiment"]) for row in rows if row.get(COMMIT))
    return f": rows of {', '.join(names)} are by this commit and processor" if names else ""


def untold(study: Study) -> str:
    count = sum(not row.get(COMMIT) for row in study.rows)
    if not count:
        return ""
    whole = len(study.rows)
    return f" {count:,} of {whole:,} rows do not tell in which of these runs they were made."
