"""Helpers for the tests of deepfreeze.dcp."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from testkit import assert_same, same

from deepfreeze.dcp import StorageReader, StorageWriter

Save = Callable[[dict[str, Any]], object]
Load = Callable[[dict[str, Any]], None]


@contextmanager
def quiet() -> Iterator[None]:
    """Silences DCP, which warns if there is no process group, and if an id is used again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def save(state: dict[str, Any], run: Path, **options: Any) -> Any:
    """Saves one step of a run; returns DCP's metadata."""
    planner = options.pop("planner", None)
    with quiet(), StorageWriter(run, **options) as writer:
        return dcp.save(state, storage_writer=writer, planner=planner)


def load(state: dict[str, Any], run: Path, **options: Any) -> int | None:
    """Into the state, in place; which step it was."""
    planner = options.pop("planner", None)
    reader = StorageReader(run, **options)
    with quiet():
        dcp.load(state, storage_reader=reader, planner=planner)
    return reader.loaded_step


def url(folder: Path) -> str:
    return f"deepfreeze://{folder}"


def blank(value: Any) -> Any:
    """A value of the same structure with other contents."""
    if isinstance(value, torch.Tensor):
        return torch.zeros_like(value)
    if isinstance(value, dict):
        return {key: blank(item) for key, item in value.items()}
    if isinstance(value, list):
        return [blank(item) for item in value]
    return None


def assert_equal(one: Any, other: Any) -> None:
    """Equal in types and bits, down to the tensors."""
    if isinstance(other, torch.Tensor):
        assert_same(one, other)
    elif isinstance(other, dict):
        assert type(one) is type(other)
        assert one.keys() == other.keys()  # DCP gives them in an order of its own
        for key, value in other.items():
            assert_equal(one[key], value)
    elif isinstance(other, (list, tuple)):
        assert type(one) is type(other)
        assert len(one) == len(other)
        for mine, theirs in zip(one, other, strict=True):
            assert_equal(mine, theirs)
    else:
        assert same(one, other)


def cause_of(error: BaseException) -> BaseException:
    """The cause of a CheckpointException of DCP on rank 0."""
    failures = error.failures  # type: ignore[attr-defined]
    cause: BaseException = failures[0][0]
    return cause
