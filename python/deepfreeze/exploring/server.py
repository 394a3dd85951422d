"""Serves the page to its owner alone: on loopback, and read-only.

Any program and any web page on this machine can reach a loopback port, so each request must show a
cookie. The address that is printed has a token, which is swapped for that cookie, once: nobody else
may see that address before it is used. A page of another site cannot use the cookie: it is
SameSite, and Host and Origin must be ours. But a browser sends it to every port of 127.0.0.1.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import socketserver
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from deepfreeze.errors import CheckpointError, make_error
from deepfreeze.exploring import page_files
from deepfreeze.exploring.answers import JSON, Answers, error_document

_ADDRESS = "127.0.0.1"
_LINE_BYTES_MAX, _HEADERS_MAX, _WORDS_MAX = 8192, 64, 8
_TIMEOUT_SECONDS = 10
_CHUNK_BYTES = 1 << 16

log = logging.getLogger("deepfreeze")
_API = "/api/"
_SECURITY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_TEXT = "text/plain; charset=utf-8"
_STATUS = {"not_found": HTTPStatus.NOT_FOUND, "invalid_argument": HTTPStatus.BAD_REQUEST}
_NO_COOKIE = (
    "This page belongs to the person who started `deepfreeze explore`.\n"
    "Open the address that it printed. It works once; start it again for another browser.\n"
)
_GO_ON = b'<!doctype html><meta http-equiv="refresh" content="0; url=/"><title>DeepFreeze</title>'


class PageServer(ThreadingHTTPServer):
    """The page of some runs."""

    daemon_threads = True

    def __init__(self, answers: Answers, port: int = 0) -> None:
        self.answers = answers
        self.files = page_files.served()
        self.cookie = secrets.token_urlsafe(32)
        self._token: str | None = secrets.token_urlsafe(32)
        self._token_lock = Lock()
        super().__init__((_ADDRESS, port), _Handler)

    def server_bind(self) -> None:
        """Without HTTPServer's question to the name service."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = _ADDRESS, self.socket.getsockname()[1]

    @property
    def url(self) -> str:
        """The address to open; it works once."""
        return f"http://{_ADDRESS}:{self.server_port}/?token={self._token}"

    @property
    def hosts(self) -> tuple[str, ...]:
        """The values that a Host header may have."""
        return f"{_ADDRESS}:{self.server_port}", f"localhost:{self.server_port}"

    @property
    def cookie_name(self) -> str:
        """Cookies of one host are those of all its ports, so the port is in the name."""
        return f"deepfreeze-{self.server_port}"

    def take_token(self, text: str) -> bool:
        """Whether it is the token, which is then used up."""
        with self._token_lock:
            if self._token is None or not _same(text, self._token):
                return False
            self._token = None
            return True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away is no error."""


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(errors="replace"), other.encode())


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "deepfreeze", ""
    timeout = _TIMEOUT_SECONDS
    raw_requestline: bytes  # set by the base

    def do_GET(self) -> None:
        if not self._is_ours():
            return
        address = urlsplit(self.path)
        if address.path == "/" and address.query and self.command == "GET":
            self._swap_token(address.query)
        elif not self._has_cookie():
            self._send(HTTPStatus.FORBIDDEN, _TEXT, _NO_COOKIE.encode())
        elif address.path in self.server.files and not address.query:
            self._send(HTTPStatus.OK, *self.server.files[address.path])
        elif address.path.startswith(_API) and not address.query:
            self._answer(address.path.removeprefix(_API))
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "no such address")

    do_HEAD = do_GET  # noqa: N815

    def _not_allowed(self) -> None:
        self.close_connection = True  # a body that came with it is not read
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD", {"Allow": "GET, HEAD"})

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _not_allowed  # noqa: N815

    def _is_ours(self) -> bool:
        """Refuses requests that are too long, or that a page of another site could send."""
        hosts = self.headers.get_all("Host") or []
        origins = self.headers.get_all("Origin") or []
        if len(self.raw_requestline) > _LINE_BYTES_MAX:
            self._refuse(HTTPStatus.REQUEST_URI_TOO_LONG, "the address is too long")
        elif len(self.headers) > _HEADERS_MAX:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "too many headers")
        elif len(hosts) != 1 or hosts[0] not in self.server.hosts:
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST, "another host was asked for")
        elif any(origin != f"http://{hosts[0]}" for origin in origins):
            self._refuse(HTTPStatus.FORBIDDEN, "another site asks")
        else:
            return True
        return False

    def _swap_token(self, query: str) -> None:
        (token,) = parse_qs(query).get("token", [""])[:1]
        if not self.server.take_token(token) and not self._has_cookie():
            self._send(HTTPStatus.FORBIDDEN, _TEXT, _NO_COOKIE.encode())
            return
        cookie = f"{self.server.cookie_name}={self.server.cookie}"
        more = {"Set-Cookie": f"{cookie}; HttpOnly; SameSite=Strict; Path=/"}
        if self.headers.get("Sec-Fetch-Site") == "cross-site":
            # From the file of opening.py. Along a redirect the cookie would not be sent; a page of
            # our own may ask with it.
            self._send(HTTPStatus.OK, "text/html; charset=utf-8", _GO_ON, more)
        else:
            self._send(HTTPStatus.SEE_OTHER, _TEXT, b"", more | {"Location": "/"})

    def _has_cookie(self) -> bool:
        # SimpleCookie would drop all that follows a value which it can't parse, and other programs
        # on this host may have set one.
        given = ";".join(self.headers.get_all("Cookie") or []).split(";")
        pairs = [part.strip().partition("=") for part in given]
        return any(
            name == self.server.cookie_name and _same(value, self.server.cookie)
            for name, _, value in pairs
        )

    def _answer(self, path: str) -> None:
        words = [unquote(word) for word in path.split("/")]
        if len(words) > _WORDS_MAX:
            self._refuse(HTTPStatus.NOT_FOUND, "no such address")
            return
        try:
            kind, data = self.server.answers.of(words)
        except CheckpointError as error:
            status = _STATUS.get(error.code, HTTPStatus.INTERNAL_SERVER_ERROR)
            self._send(status, JSON, error_document(error))
            return
        except Exception:  # the page says so, and goes on
            log.exception("an answer failed")
            cause = make_error("internal", "the program has an error: its terminal tells more")
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, JSON, error_document(cause))
            return
        self._send(HTTPStatus.OK, kind, data)

    def _refuse(self, status: HTTPStatus, text: str, more: dict[str, str] | None = None) -> None:
        self._send(status, _TEXT, f"{text}\n".encode(), more)

    def _send(
        self, status: HTTPStatus, kind: str, data: bytes, more: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        headers = {"Content-Type": kind, "Content-Length": str(len(data)), **_SECURITY}
        for name, value in (headers | (more or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            for begin in range(0, len(data), _CHUNK_BYTES):  # each has _TIMEOUT_SECONDS
                self.wfile.write(data[begin : begin + _CHUNK_BYTES])

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: addresses hold names of tensors."""
