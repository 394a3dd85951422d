"""Faults between a client and a store. Each is a few steps of an exchange."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from .exchange import Answer, Exchange


@dataclass(frozen=True)
class Fault:
    name: str
    act: Callable[[Exchange], None]


HONEST = Fault("", lambda it: it.give(it.pass_on(it.read_body())))


def refused(status: int, code: str, *fields: tuple[str, str]) -> Fault:
    """The store is not asked. A store says it so: 500, 409, 412, expired keys."""

    def act(it: Exchange) -> None:
        it.read_body()
        it.give(_error(status, code, *fields))

    return Fault(f"{status} {code}", act)


def internal_error() -> Fault:
    return refused(500, "InternalError")


def slow_down(seconds: int = 1) -> Fault:
    """Too many requests."""
    return refused(503, "SlowDown", ("Retry-After", str(seconds)))


def conflict() -> Fault:
    return refused(409, "ConditionalRequestConflict")


def precondition_failed() -> Fault:
    return refused(412, "PreconditionFailed")


def expired_token() -> Fault:
    return refused(400, "ExpiredToken")


def error_in_200() -> Fault:
    """Stores do so if a request takes long: white space first, and then an error."""

    def act(it: Exchange) -> None:
        it.read_body()
        it.give(replace(_error(200, "InternalError", white_space="\n" * 20), status=200))

    return Fault("200 with an error", act)


def cut_request(bytes_max: int) -> Fault:
    """The connection breaks when so much of the body has been sent."""

    def act(it: Exchange) -> None:
        it.pass_on_part(it.read_body(bytes_max))
        it.cut()

    return Fault(f"request cut after {bytes_max} bytes", act)


def cut_answer(bytes_max: int) -> Fault:
    """The connection breaks when so much of the answer's body has come."""

    def act(it: Exchange) -> None:
        it.give(it.pass_on(it.read_body()), bytes_max)
        it.cut()

    return Fault(f"answer cut after {bytes_max} bytes", act)


def lost_answer() -> Fault:
    """The store has acted, and the client does not hear of it."""

    def act(it: Exchange) -> None:
        it.pass_on(it.read_body())
        it.cut()

    return Fault("answer lost", act)


def silence(until: threading.Event) -> Fault:
    """No answer until then. The store is asked then, too: a request that arrives late."""

    def act(it: Exchange) -> None:
        body = it.read_body()
        it.wait(until)
        it.give(it.pass_on(body))

    return Fault("no answer", act)


def slow(bytes_per_second: float) -> Fault:
    """In both directions."""

    def act(it: Exchange) -> None:
        body = it.read_body(bytes_per_second=bytes_per_second)
        it.give(it.pass_on(body), bytes_per_second=bytes_per_second)

    return Fault(f"{bytes_per_second:.0f} bytes/s", act)


def wrong_answer(at: int = 0) -> Fault:
    """One bit of the answer's body differs."""

    def act(it: Exchange) -> None:
        answer = it.pass_on(it.read_body())
        it.give(replace(answer, body=_flipped(answer.body, at)))

    return Fault(f"wrong byte {at} in the answer", act)


def wrong_request(at: int = 0) -> Fault:
    """One bit of the body that the store gets differs."""
    return Fault(
        f"wrong byte {at} in the request",
        lambda it: it.give(it.pass_on(_flipped(it.read_body(), at))),
    )


def flipped_answer(share: float) -> Fault:
    """The bit at this share of the answer's body, of 0 to 1; an empty body stays as it is."""

    def act(it: Exchange) -> None:
        answer = it.pass_on(it.read_body())
        it.give(replace(answer, body=flipped_bit(answer.body, share)))

    return Fault(f"a bit flipped at {share:.6f} of the answer", act)


def flipped_request(share: float) -> Fault:
    return Fault(
        f"a bit flipped at {share:.6f} of the request",
        lambda it: it.give(it.pass_on(flipped_bit(it.read_body(), share))),
    )


def flipped_bit(body: bytes, share: float) -> bytes:
    changed = bytearray(body)
    if changed:
        byte, bit = divmod(int(share * 8 * len(changed)), 8)
        changed[byte] ^= 1 << bit
    return bytes(changed)


def _flipped(body: bytes, at: int) -> bytes:
    """IndexError if there is no such byte."""
    changed = bytearray(body)
    changed[at] ^= 1
    return bytes(changed)


def _error(status: int, code: str, *fields: tuple[str, str], white_space: str = "") -> Answer:
    text = (
        f'<?xml version="1.0" encoding="UTF-8"?>{white_space}'
        f"<Error><Code>{code}</Code><Message>by script</Message></Error>"
    )
    return Answer(status, [("Content-Type", "application/xml"), *fields], text.encode())
