"""The messages of a job's ranks to each other before a save, over the store that they share.

A meeting needs no memory of earlier ones. A rank asks under a random number, and rank 0 answers
under that number, so the ranks can meet whatever became of an earlier save on some of them.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from torch.distributed.distributed_c10d import PrefixStore

from deepfreeze.errors import code_of, make_error
from deepfreeze.frameworks.torch.ranks import store_errors

_NUMBER_BYTES = 32


@dataclass(frozen=True)
class Vote:
    """The message of one rank before a save."""

    session: str = ""  # of the ranks whose engine it has open; "" has none
    code: str = ""  # of the error that keeps it from saving
    message: str = ""


@dataclass(frozen=True)
class Verdict:
    """The answer that all ranks get."""

    session: str = ""  # "" is to save nothing
    step: int = 0
    code: str = ""  # why nothing is saved
    message: str = ""

    def check(self) -> None:
        """Raises the error that keeps the ranks from saving, if there is one."""
        if self.code:
            raise make_error(self.code, self.message)


@dataclass(frozen=True)
class Place:
    """The meeting point of some ranks, and the caller's number among them."""

    name: str
    rank: int
    world_size: int
    timeout_seconds: float


Judge = Callable[[list[Vote]], Verdict]


def meet(place: Place, own: Vote, judge: Judge, store: Any) -> Verdict:
    """Collective: `judge`'s verdict on the votes of all ranks, which it gets in rank order.

    Only rank 0 calls `judge`; if it raises, every rank gets the error. `store` is None for a single
    rank. TimeoutError if a rank is missing.
    """
    if store is None:
        return judge([own])
    timeout = timedelta(seconds=place.timeout_seconds)
    store = PrefixStore(f"deepfreeze/dcp/{place.world_size}/{place.name}", store)
    with store_errors("meet before a save", timeout):
        if place.rank:
            return Verdict(**json.loads(_ask(store, place.rank, _encoded(own), timeout)))
        return _answer(store, place.world_size, own, judge, timeout)


def _encoded(what: Vote | Verdict) -> bytes:
    return json.dumps(asdict(what)).encode()


def _ask(store: Any, rank: int, data: bytes, timeout: timedelta) -> bytes:
    number = secrets.token_hex(_NUMBER_BYTES // 2)
    asked, answered = f"ask/{rank}", f"answer/{number}"
    store.set(asked, number.encode() + data)
    try:
        store.wait([answered], timeout)
    except RuntimeError:
        store.delete_key(asked)  # nobody waits for that answer any more
        raise
    found: bytes = store.get(answered)
    store.delete_key(answered)
    return found


def _answer(store: Any, world_size: int, own: Vote, judge: Judge, timeout: timedelta) -> Verdict:
    keys = [f"ask/{rank}" for rank in range(1, world_size)]
    store.wait(keys, timeout)
    asked: list[bytes] = [store.get(key) for key in keys]
    for key in keys:
        store.delete_key(key)
    votes = [Vote(**json.loads(one[_NUMBER_BYTES:])) for one in asked]
    verdict = _judged(judge, [own, *votes])
    for one in asked:
        store.set(f"answer/{one[:_NUMBER_BYTES].decode()}", _encoded(verdict))
    return verdict


def _judged(judge: Judge, votes: list[Vote]) -> Verdict:
    """Turns an error of `judge` into a verdict, because the other ranks wait for an answer."""
    try:
        return judge(votes)
    except Exception as error:
        return Verdict(code=code_of(error), message=f"rank 0: {error}")
