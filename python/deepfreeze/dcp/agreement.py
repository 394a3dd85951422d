"""The ranks of a load agree whether their planners may be given the data that was read."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from deepfreeze.errors import GONE, CorruptError, IncompleteError, code_of, make_error, message_of
from deepfreeze.frameworks.torch.ranks import TorchStoreRanks

log = logging.getLogger("deepfreeze")
_FAULTS = (CorruptError.code, IncompleteError.code, GONE)


@dataclass(frozen=True)
class Report:
    """The result of one rank's reading; `code` is "" if it succeeded."""

    code: str = ""
    message: str = ""
    error: BaseException | None = field(default=None, compare=False)

    @classmethod
    def of(cls, error: BaseException) -> Report:
        """The report of a rank whose reading failed with `error`."""
        return cls(code_of(error), message_of(error), error)


@dataclass(frozen=True)
class _Verdict:
    """The common decision: finish, read that attempt instead, or raise the error of `code`."""

    attempt_id: str = ""
    code: str = ""
    message: str = ""


class Agreement:
    """Lets the ranks of one load decide together; `ranks` is None if one process loads alone."""

    def __init__(self, ranks: TorchStoreRanks | None) -> None:
        self._ranks = ranks

    def next_attempt(self, own: Report, find_next: Callable[[], str]) -> str:
        """Collective. Returns "" if every rank read its data, else the attempt that all read next.

        If no other checkpoint can mend the failure, every rank raises it. Only rank 0 calls
        `find_next`.
        """
        verdict = self._verdict(own, find_next)
        if verdict.attempt_id:
            log.warning("falling back to attempt %s: %s", verdict.attempt_id, verdict.message)
        elif verdict.code:
            raise own.error or make_error(verdict.code, verdict.message)
        return verdict.attempt_id

    def _verdict(self, own: Report, find_next: Callable[[], str]) -> _Verdict:
        if self._ranks is None:
            return _judge([own], find_next)
        given = self._ranks.gather(json.dumps([own.code, own.message]).encode())
        answers: list[bytes] = []
        if given is not None:
            verdict = _judge([Report(*json.loads(one)) for one in given], find_next)
            answers = [json.dumps(asdict(verdict)).encode()] * len(given)
        return _Verdict(**json.loads(self._ranks.scatter(answers)))


def _judge(reports: list[Report], find_next: Callable[[], str]) -> _Verdict:
    """Rank 0 decides. Any other error outranks damage: another checkpoint can't mend it."""
    bad = [(rank, one) for rank, one in enumerate(reports) if one.code]
    if not bad:
        return _Verdict()
    hard = [(rank, one) for rank, one in bad if one.code not in _FAULTS]
    rank, report = (hard or bad)[0]
    attempt_id = "" if hard else find_next()
    message = report.message if len(reports) == 1 else f"rank {rank}: {report.message}"
    return _Verdict(attempt_id, report.code, message)
