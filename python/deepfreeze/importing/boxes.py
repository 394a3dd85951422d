"""Whether boxes make a whole tensor."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from deepfreeze.state.dtypes import Shape


@dataclass(frozen=True)
class Box:
    """Offset and extent within a tensor."""

    offset: Shape
    shape: Shape

    @property
    def volume(self) -> int:
        """The number of elements in it."""
        return prod(self.shape)

    @property
    def slices(self) -> tuple[slice, ...]:
        """The slices of the whole tensor that it covers."""
        pairs = zip(self.offset, self.shape, strict=True)
        return tuple(slice(begin, begin + size) for begin, size in pairs)

    def overlaps(self, other: Box) -> bool:
        """Whether an element is in both."""
        return all(
            a.start < b.stop and b.start < a.stop
            for a, b in zip(self.slices, other.slices, strict=True)
        )


def tiling_fault(shape: Shape, boxes: list[Box]) -> str:
    """Why the boxes do not cover a tensor of that shape exactly once; "" if they do."""
    for box in boxes:
        if not len(box.offset) == len(box.shape) == len(shape):
            return f"a box of {list(box.shape)} in a tensor of {list(shape)}"
        pairs = zip(box.slices, shape, strict=True)
        if any(cut.start < 0 or cut.stop > size for cut, size in pairs):
            return f"the box at {list(box.offset)} goes beyond the tensor's {list(shape)}"
    full = [box for box in boxes if box.volume]
    if sum(box.volume for box in full) != prod(shape):
        return f"its {len(full)} boxes are not as many elements as its shape {list(shape)}"
    return _overlap(full) if shape else ""


def _overlap(boxes: list[Box]) -> str:
    """Sweeps along the dimension with the most cuts, so that few boxes are open at a time."""
    if not boxes:
        return ""
    axes = range(len(boxes[0].shape))
    axis = max(axes, key=lambda one: len({box.offset[one] for box in boxes}))
    opened: list[Box] = []
    for box in sorted(boxes, key=lambda box: box.offset[axis]):
        opened = [one for one in opened if one.slices[axis].stop > box.offset[axis]]
        for other in opened:
            if box.overlaps(other):
                return f"the boxes at {list(other.offset)} and {list(box.offset)} overlap"
        opened.append(box)
    return ""
