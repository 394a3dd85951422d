"""torch's global random number generators."""

from __future__ import annotations

from typing import Any

import torch

from deepfreeze.errors import MismatchError


def global_states() -> dict[str, Any]:
    """Their states: of the CPU, and of all CUDA devices if CUDA is used."""
    states: dict[str, Any] = {"torch": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def set_cpu(state: torch.Tensor) -> None:
    """Sets the CPU's generator."""
    torch.set_rng_state(state)


def set_cuda(states: list[torch.Tensor]) -> None:
    """Sets the generators of all CUDA devices; MismatchError if there are more or fewer now."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count != len(states):
        raise MismatchError(f"RNG: stored for {len(states)} CUDA devices, {count} are here")
    torch.cuda.set_rng_state_all(states)
