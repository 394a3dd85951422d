"""Is it a straight line? A least-squares fit of costs over sizes."""

from __future__ import annotations

from dataclasses import dataclass

KNEE = 0.25  # a point further off the line than this share of its own value is named


@dataclass(frozen=True)
class Line:
    """cost = base + slope * size."""

    base: float
    slope: float
    worst: float  # the greatest distance of a point, as a share of its value
    knee: float | None  # the size of that point, where it is far off

    def at(self, size: float) -> float:
        return self.base + self.slope * size


def fit(points: list[tuple[float, float]]) -> Line | None:
    """Weighted so that relative distances count: sizes span orders of magnitude."""
    if len(points) < 3 or any(cost <= 0 for _, cost in points):
        return None
    weights = [1 / cost**2 for _, cost in points]
    total = sum(weights)
    mean_x = sum(w * x for w, (x, _) in zip(weights, points, strict=True)) / total
    mean_y = sum(w * y for w, (_, y) in zip(weights, points, strict=True)) / total
    pairs = list(zip(weights, points, strict=True))
    spread = sum(w * (x - mean_x) ** 2 for w, (x, _) in pairs)
    slope = sum(w * (x - mean_x) * (y - mean_y) for w, (x, y) in pairs) / spread
    base = mean_y - slope * mean_x
    distances = [(abs(base + slope * x - y) / y, x) for x, y in points]
    worst, where = max(distances)
    return Line(base, slope, worst, where if worst > KNEE else None)
