"""The kinds of torch's objects, for the search of objects that are held by others."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler


def passed_attributes(holder: object) -> frozenset[str]:
    """A scheduler refers to its optimizer, but the program decides the optimizer's place."""
    return frozenset({"optimizer"}) if isinstance(holder, LRScheduler) else frozenset()


def is_module(value: object) -> bool:
    return isinstance(value, nn.Module)


def is_optimizer_of_any_format(value: object) -> bool:
    """Whether it is an optimizer, also one whose state_dict() is not torch's."""
    return isinstance(value, Optimizer)


def global_generator() -> object:
    """The CPU's, which df.RNG stores."""
    return torch.default_generator
