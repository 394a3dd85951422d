"""The state that is saved: large tensors of random numbers, and small ones between them."""

from __future__ import annotations

import torch

State = dict[str, torch.Tensor]

LARGE = 16 << 20  # bytes
SMALL = 1000  # numbers
SMALLEST = 1 << 20  # bytes of the large ones of a tiny state


def state_of(size: int, seed: int) -> State:
    """About `size` bytes. No seed: empty memory of the same shapes, which has been touched."""
    each = min(LARGE, max(SMALLEST, size // 4)) // 4
    draw = torch.Generator().manual_seed(seed)
    state = {}
    for number in range(max(1, size // 4 // each)):
        state[f"layer{number:03}.weight"] = filled(each, seed, draw)
        state[f"layer{number:03}.bias"] = filled(SMALL, seed, draw)
    return state


def filled(numbers: int, seed: int, draw: torch.Generator) -> torch.Tensor:
    if seed == 0:
        return torch.full((numbers,), -1, dtype=torch.int32)
    return torch.randint(-(1 << 31), (1 << 31) - 1, (numbers,), dtype=torch.int32, generator=draw)


def bytes_of(state: State) -> int:
    return sum(tensor.nbytes for tensor in state.values())


def is_same(one: State, other: State) -> bool:
    return all(torch.equal(one[name], other[name]) for name in other)
