"""The versions of the packages that rows were made with."""

from __future__ import annotations

from lab.measure import versions
from lab.report.summary import Study


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
