"""Boxes that make up a tensor, and flat names that make up a tree."""

import random
from typing import Any

import pytest

from deepfreeze.errors import CorruptError
from deepfreeze.importing.boxes import Box, tiling_fault
from deepfreeze.importing.unflatten import unflatten
from deepfreeze.state.encoder import DEPTH_MAX


@pytest.mark.parametrize(
    ("shape", "boxes", "fault"),
    [
        ((), [((), ())], ""),
        ((), [], "not as many"),
        ((), [((), ()), ((), ())], "not as many"),
        ((0, 3), [], ""),
        ((0, 3), [((0, 0), (0, 3))], ""),
        ((4,), [((0,), (2,)), ((2,), (2,))], ""),
        ((4,), [((0,), (2,)), ((4,), (0,)), ((2,), (2,))], ""),
        ((4,), [((0,), (2,)), ((1,), (2,))], "overlap"),
        ((4, 4), [((0, 0), (4, 2)), ((0, 2), (2, 2)), ((2, 2), (2, 2))], ""),
        ((4, 4), [((0, 0), (4, 2)), ((0, 1), (2, 2)), ((2, 2), (2, 2))], "overlap"),
        ((4, 4), [((0, 0), (4, 4)), ((4, 0), (1, 4))], "beyond"),
    ],
)
def test_parts_make_a_whole(shape: Any, boxes: Any, fault: str) -> None:
    found = tiling_fault(shape, [Box(*box) for box in boxes])
    assert (fault in found) if fault else found == ""


def test_any_cut_of_a_tensor_tiles_it_and_any_shift_does_not() -> None:
    rng = random.Random(3)

    def cut(box: Box) -> list[Box]:
        axis = rng.randrange(3)
        if box.shape[axis] < 2 or rng.random() < 0.2:
            return [box]
        at = rng.randrange(1, box.shape[axis])
        shapes = [list(box.shape), list(box.shape)]
        shapes[0][axis], shapes[1][axis] = at, box.shape[axis] - at
        moved = list(box.offset)
        moved[axis] += at
        parts = [Box(box.offset, tuple(shapes[0])), Box(tuple(moved), tuple(shapes[1]))]
        return [one for part in parts for one in cut(part)]

    for _ in range(200):
        boxes = cut(Box((0, 0, 0), (7, 6, 5)))
        rng.shuffle(boxes)
        assert tiling_fault((7, 6, 5), boxes) == ""
        if len(boxes) < 2:
            continue
        one = boxes.pop()
        shifted = tuple(begin - 1 if begin else 1 for begin in one.offset)
        assert tiling_fault((7, 6, 5), [*boxes, Box(shifted, one.shape)]) != ""


def test_flat_names_become_a_tree() -> None:
    assert unflatten([(("a", "b"), 1), (("c", 1), 2), (("c", 0, "d"), {}), (("e",), [])]) == {
        "a": {"b": 1}, "c": [{"d": {}}, 2], "e": [],
    }  # fmt: skip
    assert unflatten([]) == {}
    with pytest.raises(CorruptError, match="the state is a list"):
        unflatten([((0,), 1)])
    with pytest.raises(CorruptError, match=r"a\.b: it lies within a value"):
        unflatten([(("a",), {}), (("a", "b"), 1)])
    with pytest.raises(CorruptError, match="a: it occurs twice"):
        unflatten([(("a", "b"), {}), (("a",), 1)])


def test_holes_are_counted_together() -> None:
    assert len(unflatten([(("l", 1 << 18), 1)])["l"]) == 262145
    with pytest.raises(CorruptError, match="a list of 262145 with 1 items"):
        unflatten([((f"l{number}", 1 << 18), 1) for number in range(5)])


def test_as_deep_as_may_be() -> None:
    tree = unflatten([(("a",) * DEPTH_MAX, 1)])
    for _ in range(DEPTH_MAX):
        tree = tree["a"]
    assert tree == 1
