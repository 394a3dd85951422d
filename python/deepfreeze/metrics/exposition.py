"""Prometheus' text exposition format, version 0.0.4."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# In seconds, from a stall that nobody feels to a slow disk; three a decade would double the file.
BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


@dataclass(frozen=True)
class Sample:
    """One line: a value, with the suffix and the label that the family's name and labels lack."""

    value: float
    suffix: str = ""
    label: tuple[str, str] | None = None  # name and value; of a bucket: "le", its upper bound


@dataclass(frozen=True)
class Family:
    """A metric. Its help must be the same in all files, or the node exporter refuses one."""

    name: str
    kind: str  # counter, gauge, histogram
    help: str  # no line feed and no backslash
    samples: tuple[Sample, ...]

    def lines(self, labels: Mapping[str, str]) -> Iterable[str]:
        """The family's lines, with `labels` on each sample."""
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for each in self.samples:
            own = labels if each.label is None else {**labels, each.label[0]: each.label[1]}
            yield f"{self.name}{each.suffix}{{{_labels(own)}}} {each.value!r}"


class Histogram:
    """Counts the times that fell below each bound, in seconds."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BUCKETS) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """Counts one time."""
        self._counts[bisect_left(BUCKETS, seconds)] += 1
        self._sum += seconds

    def samples(self) -> tuple[Sample, ...]:
        """The counts, cumulative, as the format wants them."""
        bounds = [f"{bound:g}" for bound in BUCKETS] + ["+Inf"]
        total, found = 0, []
        for bound, count in zip(bounds, self._counts, strict=True):
            total += count
            found.append(Sample(total, "_bucket", ("le", bound)))
        return (*found, Sample(self._sum, "_sum"), Sample(total, "_count"))


def exposition(families: Iterable[Family], labels: Mapping[str, str]) -> str:
    """The whole file's text."""
    return "".join(f"{line}\n" for family in families for line in family.lines(labels))


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
