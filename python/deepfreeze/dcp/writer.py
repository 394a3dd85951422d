"""Saving through torch.distributed.checkpoint: each save is a step of a run."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import StorageWriter as DcpWriter
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from deepfreeze.base.arguments import absolute, checked_step
from deepfreeze.dcp.contents import content_of
from deepfreeze.dcp.meeting import Place
from deepfreeze.dcp.session import SaveJob, Session, SessionOptions, session_of
from deepfreeze.errors import CheckpointError

ARENA_BYTES_MAX = 256 << 20


@dataclass(frozen=True)
class JobSize:
    """The coordinator's message to the ranks, sent with their plans."""

    world_size: int


class StorageWriter(DcpWriter):
    """Keeps the states that dcp.save() and dcp.async_save() are given as steps of a run.

    `path`, or the checkpoint id that a save is given, is the run's directory. A save adds a step,
    and replaces none. Its number is `step` if that is set (rank 0's counts), else one more than the
    newest. The newest `keep_last` steps stay (None: all). Once the save returns, or its future has
    a result, the step of all ranks is durable, with a checksum for every block. A save that fails
    leaves no step.

    An error on one rank is raised on all. A save fails if a rank does not come within
    `timeout_seconds`, or has not written `commit_wait_seconds` after rank 0.

    The run stays open between saves, with at most `arena_bytes_max` of memory, until close() or
    until no writer for that run is left in the process. All ranks make the same saves to a run in
    the same order. For one save at a time. A pickled writer, as the process executor sends it,
    becomes a second one with the same settings.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        step: int | None = None,
        keep_last: int | None = 2,
        arena_bytes_max: int | None = ARENA_BYTES_MAX,
        timeout_seconds: float = 900.0,
        commit_wait_seconds: float = 600.0,
    ) -> None:
        super().__init__()
        self._options = SessionOptions(keep_last, arena_bytes_max, commit_wait_seconds)
        self._timeout_seconds = timeout_seconds
        self._path = self._named = ""
        self._session: Session | None = None
        self._rank = 0
        self._saved_step: int | None = None
        self.step = step
        if path is not None:
            self._aim(path)

    @property
    def step(self) -> int | None:
        """The number of the next save; None means one more than the newest."""
        return self._step

    @step.setter
    def step(self, step: int | None) -> None:
        self._step = None if step is None else checked_step(step)

    def __repr__(self) -> str:
        step = "the next step" if self._step is None else f"step {self._step}"
        return f"<{type(self).__name__} of {self._path or 'no run yet'}, {step}>"

    @property
    def checkpoint_id(self) -> str:
        """The run's directory."""
        return self._path

    def _aim(self, path: str | os.PathLike[str]) -> None:
        self._named = os.fspath(path)  # all ranks give the same, whatever their directories are
        self._path = os.fspath(absolute(path))
        self._session = session_of(self._path)

    # DCP calls the following methods, in this order.

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether it can be a directory: no URL."""
        return "://" not in os.fspath(checkpoint_id)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """The next save is to that run."""
        if checkpoint_id:
            if not self.validate_checkpoint_id(checkpoint_id):
                raise ValueError(f"checkpoint id {checkpoint_id!r}: not a directory")
            self._aim(checkpoint_id)

    def storage_meta(self) -> StorageMeta:
        """Which run, and after a save which step."""
        step = self._saved_step
        return StorageMeta(self._path, save_id=None if step is None else str(step))

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """DCP gives the rank only to a parameter of just this name."""
        self._rank = int(kwargs.get("rank", 0))
        self._saved_step = None
        if not kwargs.get("use_collectives", True):
            raise CheckpointError(
                f"save to {self._path}: use_collectives=False is refused, because the ranks of a "
                "save must agree on it",
                code="unsupported",
            )

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Returns the plan unchanged."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Tells the ranks how many of them save: some of the program may take no part."""
        return [replace(plan, storage_data=JobSize(len(plans))) for plan in plans]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Returns once the step is durable. CheckpointError; collective."""
        size = plan.storage_data
        if self._session is None or not isinstance(size, JobSize):
            what = "no path was given" if self._session is None else _FOREIGN_PLAN
            raise CheckpointError(f"save to {self._path!r}: {what}", code="invalid_argument")
        place = Place(
            f"{zlib.crc32(os.fsencode(self._named)):08x}",
            self._rank,
            size.world_size,
            self._timeout_seconds,
        )
        job = SaveJob(place, self._options, self._step)
        self._saved_step, content = self._session.store(
            lambda: content_of(plan, planner, self._rank), job
        )
        done: Future[list[WriteResult]] = Future()
        done.set_result(content.results)
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Nothing is left to commit; the metadata learns which step it is."""
        metadata.storage_meta = self.storage_meta()

    # The user of a writer calls the following.

    def close(self) -> None:
        """Gives the run's memory and threads back. A later save opens it again."""
        if self._session is not None:
            self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_session": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._path:
            self._session = session_of(self._path)


_FOREIGN_PLAN = (
    "the plan was made for another storage (DCP caches plans under the planner's class name: use "
    "one class of planners for each)"
)
