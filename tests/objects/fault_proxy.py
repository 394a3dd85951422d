"""An HTTP/1.1 proxy on loopback, in front of a store, that does faults by a script.

Each request is passed on as it came, over a connection of its own: with its Host field, which is
signed. A fault that is scripted and does not happen is an error. One thread for each connection.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

from .exchange import Exchange, Seen
from .faults import HONEST, Fault

SECRETS = re.compile(r"(?i)(x-amz-(?:signature|credential|security-token)=)[^&]*")


When = Callable[[Seen], bool]


def matching(method: str = "*", path: str = "*", query: str = "") -> When:
    """Patterns of method and path, and part of the query."""
    return lambda seen: (
        fnmatchcase(seen.method, method) and fnmatchcase(seen.path, path) and query in seen.query
    )


@dataclass
class Rule:
    """A fault for some of the requests that `when` holds for."""

    fault: Fault
    when: When
    skipped: int  # of those requests, before the first fault
    times: int | None  # None: all that come
    matched: int = 0
    hits: int = 0
    happened: threading.Event = field(default_factory=threading.Event)

    def takes(self, seen: Seen) -> bool:
        if not self.when(seen):
            return False
        self.matched += 1
        if self.matched <= self.skipped or self.hits == self.times:
            return False
        self.hits += 1
        self.happened.set()
        return True


@dataclass
class _State:
    """Shared by the threads, under its lock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    seen: list[Seen] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    connections: set[socket.socket] = field(default_factory=set)
    mistakes: list[BaseException] = field(default_factory=list)  # of this proxy itself


class FaultProxy:
    """Runs within its `with` block."""

    def __init__(self, store_port: int) -> None:
        self._store_port = store_port
        self._state = _State()
        self._closing = threading.Event()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def seen(self) -> list[Seen]:
        """All requests up to now."""
        with self._state.lock:
            return list(self._state.seen)

    @contextmanager
    def doing(
        self, fault: Fault, when: When | None = None, skipped: int = 0, times: int | None = 1
    ) -> Iterator[Rule]:
        """The fault happens within this block, at least once."""
        rule = Rule(fault, when or matching(), skipped, times)
        with self._state.lock:
            self._state.rules.append(rule)
        try:
            yield rule
        finally:
            with self._state.lock:
                self._state.rules.remove(rule)
        if rule.hits == 0:
            raise AssertionError(f"{fault.name} did not happen: {rule.matched} requests matched")

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        """One request, in the thread of its connection."""
        path, _, query = handler.path.partition("?")
        with self._state.lock:
            number = len(self._state.seen) + 1
            seen = Seen(number, handler.command, unquote(path), SECRETS.sub(r"\1...", query))
            self._state.seen.append(seen)
            fault = next((rule.fault for rule in self._state.rules if rule.takes(seen)), HONEST)
            seen.fault = fault.name
        exchange = Exchange(handler, seen, self._store_port, self._closing)
        try:
            fault.act(exchange)
        except (OSError, HTTPException):  # the client or the store has gone away
            exchange.cut()
        except Exception as error:
            exchange.cut()
            with self._state.lock:
                self._state.mistakes.append(error)

    def opened(self, connection: socket.socket) -> None:
        with self._state.lock:
            self._state.connections.add(connection)

    def closed(self, connection: socket.socket) -> None:
        with self._state.lock:
            self._state.connections.discard(connection)

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        with self._state.lock:
            for connection in self._state.connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()  # it waits for the threads of connections
        if self._state.mistakes:
            raise self._state.mistakes[0]


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 128

    def __init__(self, proxy: FaultProxy) -> None:
        self.proxy = proxy
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.proxy.opened(self.connection)

    def finish(self) -> None:
        self.server.proxy.closed(self.connection)
        super().finish()

    def handle(self) -> None:
        with suppress(ConnectionError):  # a client that goes away between two requests
            super().handle()

    def _serve(self) -> None:
        self.server.proxy.serve(self)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Nowhere."""
