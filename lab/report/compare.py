"""Two studies beside each other: what should be alike, and how far timings are apart."""

from dataclasses import asdict, dataclass
from math import comb, isfinite
from pathlib import Path
from typing import Any

from lab.measure.journal import ALIKE
from lab.measure.row import COLUMNS, NAMES, Kind, Value, identity
from lab.report import method
from lab.report.method import values
from lab.report.summary import Figure, Group, Study, read

EXACT = [name for name, column in COLUMNS.items() if column.kind is Kind.EXACT]
MEASURED = [name for name, column in COLUMNS.items() if column.kind is Kind.MEASURED]
SHOWN_MAX = 20  # of the timings that are furthest apart
JSON_FORMAT = 1


@dataclass(frozen=True)
class Change:
    """An exact column that differs."""

    what: str
    column: str
    first: Value
    second: Value


@dataclass(frozen=True)
class Timing:
    """A measured column of both; `apart`: both have a spread, and these don't even touch."""

    what: str
    column: str
    first: Figure
    second: Figure

    @property
    def ratio(self) -> float:
        if self.first.median:
            return self.second.median / self.first.median
        return float("inf") if self.second.median else 1.0

    @property
    def has_spread(self) -> bool:
        return min(self.first.count, self.second.count) > 1

    @property
    def apart(self) -> bool:
        if not self.has_spread:
            return False
        return self.first.high < self.second.low or self.second.high < self.first.low

    @property
    def chance(self) -> float:
        """That the spreads of two random samples of one distribution do not touch."""
        if not self.has_spread:
            return 0.0
        return 2 / comb(self.first.count + self.second.count, self.first.count)

    @property
    def distance(self) -> float:
        """How many times as long, whichever is longer."""
        return max(self.ratio, 1 / self.ratio) if self.ratio > 0 else float("inf")


@dataclass(frozen=True)
class Comparison:
    names: tuple[str, str]
    measurements: int  # that both have
    changes: tuple[Change, ...]
    timings: tuple[Timing, ...]  # furthest apart first
    unlike: tuple[str, ...]  # of the studies themselves
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]

    @property
    def exit_status(self) -> int:
        """1 where something differs that two runs of one plan should have alike."""
        return 1 if self.changes or self.only_first or self.only_second else 0

    def text(self) -> str:
        first, second = self.names
        apart = [one for one in self.timings if one.apart][:SHOWN_MAX]
        return "\n".join([
            f"{first} and {second}: {self.measurements} measurements of both, "
            f"{len(self.changes)} exact values differ",
            *([f"  they differ in {', '.join(self.unlike)}"] if self.unlike else []),
            *(f"  {one.what}: {one.column}: {one.first} -> {one.second}" for one in self.changes),
            *(f"  only in {first}: {one}" for one in self.only_first),
            *(f"  only in {second}: {one}" for one in self.only_second),
            *self._spreads(),
            *(f"  {one.what}: {one.column}: {shown_figure(one.first)} -> "
              f"{shown_figure(one.second)}, {one.ratio:.2f} x" for one in apart),
        ])  # fmt: skip

    def _spreads(self) -> list[str]:
        told = self.spreads()
        if not told["timings"]:
            return []
        return [
            f"  timings with a spread: {told['timings']}; one is up to {told['half_within']:.2f} x "
            f"the other in half of them, up to {told['nine_in_ten_within']:.2f} x in nine of ten; "
            f"the spreads of {told['apart']} do not touch, where chance alone would have it in "
            f"{told['apart_by_chance']:.0f}"
        ]

    def spreads(self) -> dict[str, Any]:
        """How well timings repeat, of those that have a spread."""
        found = [one for one in self.timings if one.has_spread]
        distances = sorted(one.distance for one in found)
        return {
            "timings": len(found),
            "apart": sum(one.apart for one in found),
            "apart_by_chance": sum(one.chance for one in found),
            "half_within": distances[len(found) // 2] if found else None,
            "nine_in_ten_within": distances[len(found) * 9 // 10] if found else None,
        }

    def as_json(self) -> dict[str, Any]:
        return {
            "format": JSON_FORMAT,
            "studies": list(self.names),
            "measurements": self.measurements,
            "unlike": list(self.unlike),
            "spreads": {name: finite(value) for name, value in self.spreads().items()},
            "changes": [asdict(one) for one in self.changes],
            "timings": [asdict(one) | {"ratio": finite(one.ratio), "apart": one.apart}
                        for one in self.timings],
            "only_first": list(self.only_first),
            "only_second": list(self.only_second),
        }  # fmt: skip


def finite(value: float | None) -> float | None:
    """JSON has no word for infinity."""
    return None if value is None or not isfinite(value) else value


def shown_figure(one: Figure) -> str:
    return f"{one.median:.4g} [{one.low:.4g}, {one.high:.4g}]"


def compare(first: Path, second: Path) -> Comparison:
    """JournalError where one of them holds no study."""
    studies = [read(directory) for directory in (first, second)]
    found = [by_identity(study) for study in studies]
    both = [(one, found[1][key]) for key, one in found[0].items() if key in found[1]]
    timings = [timing for pair in both for timing in timings_of(*pair)]
    return Comparison(
        names=(str(first), str(second)),
        measurements=len(both),
        changes=tuple(change for pair in both for change in changes_of(*pair)),
        timings=tuple(sorted(timings, key=lambda one: one.distance, reverse=True)),
        unlike=unlike(*studies),
        only_first=tuple(named(one) for key, one in found[0].items() if key not in found[1]),
        only_second=tuple(named(one) for key, one in found[1].items() if key not in found[0]),
    )


def by_identity(study: Study) -> dict[tuple[Value, ...], Group]:
    groups = [group for name in study.experiments for group in study.groups(name)]
    return {(group["experiment"], *identity(group.rows[0])): group for group in groups}


def named(group: Group) -> str:
    """The words that tell it from the others."""
    found = {name: group[name] for name in NAMES if group[name] not in (None, "")}
    return " ".join(str(value) if isinstance(value, str) else f"{name}={value}"
                    for name, value in found.items())  # fmt: skip


def changes_of(first: Group, second: Group) -> list[Change]:
    what = named(first)
    return [
        Change(what, name, one, other)
        for name in EXACT if (one := said(first, name)) != (other := said(second, name))
    ]  # fmt: skip


def said(group: Group, column: str) -> Value:
    """By all repetitions; where they contradict each other, all that they say."""
    found = list(dict.fromkeys(row.get(column) for row in group.rows))
    return found[0] if len(found) == 1 else ", ".join(sorted(map(str, found)))


def unlike(first: Study, second: Study) -> tuple[str, ...]:
    """What may explain differences before anything else does."""
    pairs = [(name, first.about.get(name), second.about.get(name)) for name in ("quick", "seed")]
    pairs += [(name, all_of(first, name), all_of(second, name)) for name in ALIKE]
    pairs += method.unlike(first, second)
    return tuple(f"{name} ({one}, {other})" for name, one, other in pairs if one != other)


def all_of(study: Study, name: str) -> str:
    """Of the machine it began on and of those that it was gone on with."""
    return ", then ".join(map(str, values(study, name)))


def timings_of(first: Group, second: Group) -> list[Timing]:
    pairs = [(name, first.figure(name), second.figure(name)) for name in MEASURED]
    return [Timing(named(first), name, one, two) for name, one, two in pairs if one and two]
