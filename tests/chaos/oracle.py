"""Knows the steps begun, acknowledged and damaged, and so the checkpoints that must be found.

It raises a violation for any other result. Points are ordered as the product orders
checkpoints: each life of the trainer claims a newer generation, and its steps ascend.
"""

from __future__ import annotations

from collections.abc import Iterator

from .children import Event, ViolationError
from .on_disk import Held
from .state import Digests, Point, World, digests_at


class Oracle:
    """The truth about one run."""

    def __init__(self, world: World, keep: int) -> None:
        self._world = world
        self._keep = keep
        self.begun: dict[int, list[int]] = {}  # the steps of each life, ascending
        self.durable: set[Point] = set()
        self.spoiled: dict[str, Point] = {}  # by directory: damaged on purpose
        self._origins: dict[int, Point | None] = {}  # the point from which each life continued
        self._perhaps: set[Point] = set()  # committed or not: in flight, or their life ended
        self._bound = Point(0, 0)  # retention may have deleted older ones
        self.restored = 0
        self.fell_back = 0

    def heed(self, life: int, event: Event) -> None:
        """Whatever a trainer says."""
        kind = event["kind"]
        if kind == "restored":
            self._check_restored(life, event)
        elif kind == "begun":
            self._begin(Point(life, event["step"]))
        elif kind == "durable":
            self._acknowledge(Point(life, event["step"]))
        elif kind == "failed" and "outcome unknown" not in event["message"]:
            self._perhaps.discard(Point(life, event["step"]))

    def was_begun(self, point: Point) -> bool:
        return point.step in self.begun.get(point.life, [])

    def at_step(self, step: int) -> list[Point]:
        """The points with this step number, of all lives, newest first."""
        return [Point(life, step) for life in reversed(self.begun) if step in self.begun[life]]

    def floor(self) -> Point | None:
        """The newest that is acknowledged and not damaged: nothing older may be restored."""
        return max(self.durable - set(self.spoiled.values()), default=None)

    def check_bytes(self, point: Point, digests: Digests, whose: str) -> None:
        """Exactly the bytes of one point that was begun."""
        if not self.was_begun(point):
            raise ViolationError(f"{whose}: {point} was never begun")
        if wrong := self._wrong_keys(point, digests):
            raise ViolationError(f"{whose}: {point} has wrong bytes in {wrong}")

    def has_bytes(self, point: Point, digests: Digests) -> bool:
        return not self._wrong_keys(point, digests)

    def _wrong_keys(self, point: Point, digests: Digests) -> list[str]:
        truth = digests_at(self._world, point)
        return sorted(key for key in truth | digests if truth.get(key) != digests.get(key))

    def lose(self, directory: str) -> None:
        """A damaged checkpoint is gone for good."""
        self.durable.discard(self.spoiled.pop(directory))

    def check_floor(self, point: Point | None, floor: Point | None, whose: str) -> None:
        if floor is not None and (point is None or point < floor):
            raise ViolationError(f"{whose}: got {point}, and {floor} was acknowledged")

    def _check_restored(self, life: int, event: Event) -> None:
        point = None if event["point"] is None else Point(*event["point"])
        whose = f"restore of life {life}"
        if not event["chosen"]:
            self.check_floor(point, self.floor(), whose)
            self._check_told(point, event["fell_back"], whose)
        if point is not None:
            self.check_bytes(point, event["digests"], whose)
        self._origins[life] = point
        self.restored += 1
        self.fell_back += bool(event["fell_back"])

    def _check_told(
        self, point: Point | None, fell_back: list[tuple[int, str]], whose: str
    ) -> None:
        """Points that were passed over were damaged, or collected; and all are reported."""
        newer = [each for each in self.spoiled.values() if point is None or each > point]
        told = [step for step, _ in fell_back]
        if missing := sorted({each.step for each in newer} - set(told)):
            raise ViolationError(f"{whose}: fell back from {missing} without a word: {fell_back}")
        for step, reason in fell_back:
            if step not in {each.step for each in newer} and not is_gone(reason):
                raise ViolationError(f"{whose}: passed step {step} over, which is whole: {reason}")

    def _acknowledge(self, point: Point) -> None:
        newest = max(self.durable, default=None)
        if newest is not None and newest.life > point.life and point not in self.line(newest):
            raise ViolationError(
                f"{point} was acknowledged, though {newest} had taken the run over"
            )
        self.durable.add(point)

    def line(self, head: Point) -> Iterator[Point]:
        """The points that the run to `head` passed through, newest first."""
        last: Point | None = head
        while last is not None:
            for step in reversed(self.begun.get(last.life, [])):
                if step <= last.step:
                    yield Point(last.life, step)
            last = self._origins.get(last.life)

    def _begin(self, point: Point) -> None:
        self.begun.setdefault(point.life, []).append(point.step)
        self._perhaps.add(point)
        self._bound = max(self._bound, self._oldest_kept(point))

    def _oldest_kept(self, head: Point) -> Point:
        """The bound after all possible commits; the present bound if the rule keeps more."""
        kept: list[Point] = []
        for point in self.line(head):
            if point < self._bound or len(kept) == self._keep:
                break
            if point in self.durable or point in self._perhaps:
                kept.append(point)
        return kept[-1] if len(kept) == self._keep else self._bound

    def required(self) -> set[Point]:
        """Acknowledged checkpoints that no rule may have deleted."""
        return {each for each in self.durable if each >= self._bound} - set(self.spoiled.values())

    def check_held(self, found: list[Held]) -> None:
        """With nobody writing: all required points are there, and none that was never begun."""
        points = {each.point for each in found}
        if lost := sorted(self.required() - points):
            raise ViolationError(
                f"{lost} was acknowledged, and is lost; there are {sorted(points)}"
            )
        if strange := sorted(each for each in points if not self.was_begun(each)):
            raise ViolationError(f"on disk, but never begun: {strange}")
        self._perhaps &= points


def is_gone(reason: str) -> bool:
    """A checkpoint that was collected between the list and the read."""
    return "No such file or directory" in reason or "not found" in reason
