"""A run that this process keeps open from one save to the next: memory, plan and claim are kept."""

from __future__ import annotations

import os
import secrets
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deepfreeze import _core
from deepfreeze.dcp.connections import connection
from deepfreeze.dcp.contents import Content
from deepfreeze.dcp.meeting import Place, Verdict, Vote, meet
from deepfreeze.dcp.saving import save_and_wait
from deepfreeze.errors import CheckpointError, code_of, message_of
from deepfreeze.frameworks.torch.ranks import TorchStoreRanks
from deepfreeze.saving.capture import table_of
from deepfreeze.state.memo import Memo

_FIRST_STEP = 1
_TAGS = {"saved_through": "torch.distributed.checkpoint"}


@dataclass(frozen=True)
class SessionOptions:
    """The engine's settings; other settings need another engine."""

    keep_last: int | None
    arena_bytes_max: int | None
    commit_wait_seconds: float


@dataclass(frozen=True)
class SaveJob:
    """One save, by one rank or by several."""

    place: Place
    options: SessionOptions
    step: int | None  # None: the newest and one more


class Session:
    """One run, opened by its first save. Each save is of all ranks, whole or not at all.

    Saves of several threads come one after the other; if there are several ranks, all must make
    them in the same order. A failed save closes the engine, on every rank by its next save at the
    latest.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._memo = Memo()
        self._engine: _core.Engine | None = None
        self._opened_for: tuple[SessionOptions, Place] | None = None  # these three are the engine's
        self._name = ""
        self._ranks: TorchStoreRanks | None = None
        self._closer: weakref.finalize[[], Session] | None = None

    def store(self, make: Callable[[], Content], job: SaveJob) -> tuple[int, Content]:
        """Saves one step; returns its number and this rank's part of it once it is durable.

        Collective. An error that `make` raises is raised on all ranks, and nothing is saved then.
        """
        with self._lock, connection(job.place.world_size) as store:
            content, table, verdict = self._agreed(make, job, store)
            try:
                self._commit(content, table, verdict, job, store)
            except Exception:
                self._close()  # the ranks may be out of step
                raise
            return verdict.step, content

    def close(self) -> None:
        """Gives memory and threads back. The next save opens the run again."""
        with self._lock:
            self._close()

    def _agreed(
        self, make: Callable[[], Content], job: SaveJob, store: Any
    ) -> tuple[Content, _core.Table, Verdict]:
        """This rank's part, once all ranks have theirs."""
        own = Vote(self._name if self._opened_for == (job.options, job.place) else "")
        failure: BaseException | None = None
        try:
            content = make()
            table = table_of(content.entries, self._memo)
        except BaseException as error:  # an interrupt, too, must not leave the others waiting
            failure = error
            own = Vote(code=code_of(error), message=message_of(error))
        try:
            verdict = meet(job.place, own, lambda votes: self._judge(votes, job.step), store)
        except Exception:
            if failure is None:
                raise
        if failure is not None:
            raise failure
        verdict.check()
        return content, table, verdict

    def _judge(self, votes: list[Vote], step: int | None) -> Verdict:
        """Called by rank 0 alone."""
        for rank, vote in enumerate(votes):
            if vote.code:
                return Verdict(code=vote.code, message=f"rank {rank}: {vote.message}")
        names = {vote.session for vote in votes}
        session = names.pop() if len(names) == 1 else ""
        return Verdict(
            session=session or secrets.token_hex(8),
            step=_next_step(self._path) if step is None else step,
        )

    def _commit(
        self, content: Content, table: _core.Table, verdict: Verdict, job: SaveJob, store: Any
    ) -> None:
        if self._ranks is not None:
            self._ranks.connect(store)
        if self._engine is None or self._name != verdict.session:
            self._open(verdict.session, job, store)
        assert self._engine is not None
        save_and_wait(self._engine, verdict.step, table, content.text, _TAGS, content.entries)

    def _open(self, name: str, job: SaveJob, store: Any) -> None:
        self._close()
        place, options = job.place, job.options
        ranks = None
        if store is not None:
            ranks = TorchStoreRanks(
                store,
                f"deepfreeze/dcp/session/{name}",
                place.rank,
                place.world_size,
                timeout_seconds=place.timeout_seconds,
            )
        engine = _core.Engine(
            self._path,
            keep_last=options.keep_last,
            profile="throughput",
            arena_bytes_max=options.arena_bytes_max,
            ranks=ranks,
            commit_wait_max_seconds=options.commit_wait_seconds,
        )
        self._engine, self._name, self._ranks = engine, name, ranks
        self._opened_for = options, place
        # Not at exit: no save is in flight then, and the engine's destructor frees everything.
        self._closer = weakref.finalize(self, engine.close)
        self._closer.atexit = False
        newest = next((info for info in engine.candidates() if not info.fault), None)
        if newest is not None:
            engine.continue_from(newest)

    def _close(self) -> None:
        if self._closer is not None:
            self._closer()
        self._engine = self._opened_for = self._closer = self._ranks = None
        self._name = ""


def _next_step(path: str) -> int:
    try:
        infos = _core.list_checkpoints(path)
    except CheckpointError as error:
        if error.code != "not_found":
            raise
        infos = []
    newest = next((info for info in infos if not info.fault), None)
    return _FIRST_STEP if newest is None else newest.step + 1


_sessions: weakref.WeakValueDictionary[str, Session] = weakref.WeakValueDictionary()
_sessions_lock = threading.Lock()


def session_of(path: str | os.PathLike[str]) -> Session:
    """The one session of this process for a run, as long as somebody holds it. Any thread."""
    place = os.path.realpath(path)  # two names of a directory are one run
    with _sessions_lock:
        session = _sessions.get(place)
        if session is None:
            session = _sessions[place] = Session(os.fspath(path))
        return session
