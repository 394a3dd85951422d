"""Loading through torch.distributed.checkpoint: the newest step of a run that verifies."""

from __future__ import annotations

import logging
import os
import secrets
from dataclasses import dataclass, replace
from typing import Any

from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner
from torch.distributed.checkpoint.storage import StorageReader as DcpReader
from torch.futures import Future

from deepfreeze import _core
from deepfreeze.base.arguments import absolute
from deepfreeze.dcp.agreement import Agreement, Report
from deepfreeze.dcp.connections import connection
from deepfreeze.dcp.reading import Loading
from deepfreeze.dcp.stored import Stored
from deepfreeze.errors import CheckpointError, CorruptError, MismatchError
from deepfreeze.frameworks.torch.ranks import TorchStoreRanks
from deepfreeze.restoring.chosen import Step, checked, is_newest, point_in
from deepfreeze.restoring.restorer import newest_good

log = logging.getLogger("deepfreeze")


@dataclass(frozen=True)
class LoadJob:
    """The coordinator's message to the ranks, sent with their plans."""

    world_size: int
    attempt_id: str  # of the checkpoint that all read
    name: str  # unique to this load


class StorageReader(DcpReader):
    """Reads a step that StorageWriter has saved into the run in the directory `path`.

    `step` chooses it as Checkpointer.restore() does ("best" too); the default is the newest step
    that verifies. If that one does not verify, or was deleted meanwhile, all ranks warn and take
    the newest other one together. That also holds for a block that is found damaged while tensors
    are filled, as long as the other step has the same names, dtypes and shapes; otherwise it is a
    CorruptError.

    Values that could only be saved as a pickle are refused unless `allow_pickle` is set: DCP's
    planners load them with weights_only=False, which runs the code in them. For one load at a time.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        step: Step = None,
        allow_pickle: bool = False,
        timeout_seconds: float = 900.0,
    ) -> None:
        super().__init__()
        self._path = "" if path is None else os.fspath(absolute(path))
        self._step = checked(step)
        self._allow_pickle = allow_pickle
        self._timeout_seconds = timeout_seconds
        self._rank = 0
        self._planned: Stored | None = None  # the planner has its metadata
        self._tried: set[str] = set()  # the attempts that are not to be tried again
        self.loaded_step: int | None = None

    def __repr__(self) -> str:
        step = "the newest step" if self._step is None else f"step {self._step}"
        return f"<{type(self).__name__} of {self._path or 'no run yet'}, {step}>"

    @property
    def checkpoint_id(self) -> str:
        """The run's directory."""
        return self._path

    # DCP calls the following methods, in this order.

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether it can be a directory: no URL."""
        return "://" not in os.fspath(checkpoint_id)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """The next load is of that run."""
        if checkpoint_id:
            self._path = os.fspath(absolute(checkpoint_id, "checkpoint_id"))
        self._planned, self._tried = None, set()

    # Not "kwargs": to a reader with that parameter DCP comes again for metadata of each rank.
    def read_metadata(self, *args: Any, **options: Any) -> Metadata:
        """The metadata of the step to load. CheckpointError if there is no checkpoint."""
        found = newest_good(lambda: point_in(self._path, self._step), Stored, step=self._step)
        if found is None:
            raise CheckpointError(f"{self._path}: no checkpoint to load", code="not_found")
        info, stored, _ = found
        self._planned, self._tried = stored, {info.attempt_id}
        metadata = stored.metadata()
        metadata.storage_meta = StorageMeta(self._path, load_id=str(info.step))
        return metadata

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        """DCP gives the rank only to a parameter of just this name."""
        self._rank = int(kwargs.get("rank", 0))

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Returns the plan unchanged."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Tells the ranks which checkpoint rank 0 has found: theirs may be another one."""
        assert self._planned is not None  # read_metadata() came before
        job = LoadJob(len(plans), self._planned.info.attempt_id, secrets.token_hex(8))
        return [replace(plan, storage_data=job) for plan in plans]

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Fills the planner's tensors and objects. Collective. CorruptError, MismatchError."""
        job = plan.storage_data
        if not isinstance(job, LoadJob):
            raise CheckpointError(
                f"load {self._path}: the planner has lost the plan's storage_data",
                code="invalid_argument",
            )
        self._load(job, Loading(plan.items, planner, allow_pickle=self._allow_pickle))
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _load(self, job: LoadJob, loading: Loading) -> None:
        """All ranks read their items from one checkpoint, or no planner is given anything."""
        with connection(job.world_size) as store:
            self._read(job, loading, Agreement(self._ranks(job, store)))
        loading.deliver()

    def _ranks(self, job: LoadJob, store: Any) -> TorchStoreRanks | None:
        if store is None:
            return None
        return TorchStoreRanks(
            store,
            f"deepfreeze/dcp/load/{job.name}",
            self._rank,
            job.world_size,
            timeout_seconds=self._timeout_seconds,
        )

    def _read(self, job: LoadJob, loading: Loading, agreement: Agreement) -> None:
        attempt_id = job.attempt_id
        while attempt_id:
            report = Report()
            try:
                stored = self._stored_as(attempt_id)
                loading.read(stored, shows=self._rank == 0)
                self.loaded_step = stored.info.step
            except BaseException as error:  # an interrupt, too, must not leave the others waiting
                report = Report.of(error)
                if isinstance(error, CheckpointError):
                    error.state_modified = loading.modified
            attempt_id = agreement.next_attempt(report, self._next_attempt)

    def _stored_as(self, attempt_id: str) -> Stored:
        """That checkpoint. CorruptError unless it has the same tensors as the planned one."""
        assert self._planned is not None
        if self._planned.info.attempt_id == attempt_id:
            return self._planned
        infos = _core.list_checkpoints(self._path)
        info = next((info for info in infos if info.attempt_id == attempt_id), None)
        if info is None:
            raise CorruptError(
                f"load {self._path}: attempt {attempt_id} is gone or not visible here"
            )
        stored = Stored(info)
        if stored.description != self._planned.description:
            raise MismatchError(
                f"load {self._path}: step {info.step} has other names, dtypes or shapes than step "
                f"{self._planned.info.step}, which this load was planned with"
            )
        return stored

    def _next_attempt(self) -> str:
        """The newest checkpoint with the same tensors as the planned one; "" if there is none."""
        if not is_newest(self._step):
            return ""
        for info in _core.list_checkpoints(self._path):
            if info.attempt_id in self._tried:
                continue
            self._tried.add(info.attempt_id)
            try:
                self._stored_as(info.attempt_id)
            except CheckpointError as error:
                log.warning("step %d can't be loaded either: %s", info.step, error)
                continue
            return info.attempt_id
        return ""
