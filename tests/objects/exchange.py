"""One request at the proxy: the steps that faults are made of."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler

SECONDS_MAX = 60.0  # of silence of the store
OF_ONE_HOP = ("connection", "expect", "keep-alive", "transfer-encoding")  # not passed on
TICK_SECONDS = 0.05


@dataclass
class Seen:
    """A request and its fate. Fields and bodies are not kept, as they may hold secrets."""

    number: int  # from 1, in the order of arrival
    method: str
    path: str  # "/bucket/key", decoded
    query: str
    fault: str = ""
    store_status: int = 0  # 0: the store gave no answer, or was not asked
    status: int = 0  # of the answer to the client; 0: there was none, or not the whole


@dataclass(frozen=True)
class Answer:
    status: int
    fields: Sequence[tuple[str, str]]
    body: bytes


class Exchange:
    """Belongs to the thread of its connection. OSError, HTTPException: one of the two is gone."""

    def __init__(
        self,
        handler: BaseHTTPRequestHandler,
        seen: Seen,
        store_port: int,
        closing: threading.Event,
    ) -> None:
        self._handler = handler
        self._seen = seen
        self._store_port = store_port
        self._closing = closing
        self._left = int(handler.headers.get("content-length", "0"))

    def read_body(
        self, bytes_max: int | None = None, bytes_per_second: float | None = None
    ) -> bytes:
        """The rest of it, or as much as is wanted."""
        if "transfer-encoding" in self._handler.headers:
            raise NotImplementedError("a request in chunks")
        wanted = self._left if bytes_max is None else min(bytes_max, self._left)
        read = bytearray()
        while len(read) < wanted:
            piece = self._handler.rfile.read(_piece(wanted - len(read), bytes_per_second))
            if not piece:
                raise ConnectionError("the client is gone")
            read += piece
            self._pause(bytes_per_second)
        self._left -= wanted
        return bytes(read)

    def pass_on(self, body: bytes) -> Answer:
        """The store's answer."""
        with self._begun() as connection:
            with suppress(ConnectionError):  # a store may answer before it has read all
                connection.send(body)
            with connection.getresponse() as response:
                answer = Answer(response.status, response.getheaders(), response.read())
        self._seen.store_status = answer.status
        return answer

    def pass_on_part(self, body: bytes) -> None:
        """The store gets a request that breaks off."""
        with self._begun() as connection:
            connection.send(body)

    def give(
        self, answer: Answer, bytes_max: int | None = None, bytes_per_second: float | None = None
    ) -> None:
        """To the client. With `bytes_max` no more than this of the body."""
        handler = self._handler
        is_head = handler.command == "HEAD"
        not_passed_on = OF_ONE_HOP if is_head else (*OF_ONE_HOP, "content-length")
        # Before the client has it: then it may look.
        self._seen.status = answer.status
        handler.send_response_only(answer.status)
        for name, value in answer.fields:
            if name.lower() not in not_passed_on:
                handler.send_header(name, value)
        if not is_head and answer.status != 204:
            handler.send_header("Content-Length", str(len(answer.body)))
        handler.end_headers()
        body = memoryview(answer.body)[:bytes_max]
        while body:
            size = _piece(len(body), bytes_per_second)
            handler.wfile.write(body[:size])
            body = body[size:]
            self._pause(bytes_per_second)

    def cut(self) -> None:
        """The connection to the client."""
        self._seen.status = 0
        with suppress(OSError):
            self._handler.connection.shutdown(socket.SHUT_RDWR)

    def wait(self, happened: threading.Event) -> None:
        """ConnectionError if the proxy is closed meanwhile."""
        while not happened.wait(TICK_SECONDS):
            if self._closing.is_set():
                raise ConnectionError("the proxy is closed")

    def _begun(self) -> _Connection:
        connection = _Connection("127.0.0.1", self._store_port, timeout=SECONDS_MAX)
        handler = self._handler
        connection.putrequest(
            handler.command, handler.path, skip_host=True, skip_accept_encoding=True
        )
        for name, value in handler.headers.items():
            if name.lower() not in OF_ONE_HOP:
                connection.putheader(name, value)
        connection.endheaders()
        return connection

    def _pause(self, bytes_per_second: float | None) -> None:
        if bytes_per_second is not None:
            self._closing.wait(TICK_SECONDS)


class _Connection(http.client.HTTPConnection):
    def __enter__(self) -> _Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _piece(size: int, bytes_per_second: float | None) -> int:
    """As many bytes as go before the next pause."""
    if bytes_per_second is None:
        return size
    return min(size, max(1, round(bytes_per_second * TICK_SECONDS)))
