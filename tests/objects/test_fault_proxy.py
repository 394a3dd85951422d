"""Each fault of the proxy does as its name says, and nothing else."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, IncompleteRead
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from . import faults
from .checksum import crc32c
from .fault_proxy import FaultProxy, matching
from .faults import Fault
from .signed_client import Client, Keys

SECONDS_MAX = 30.0  # for waits that must not hang
KEPT = bytes(range(256)) * 40  # the answer to each GET
BODY = b"0123456789" * 100
NO_ANSWER = (OSError, HTTPException)


class Upstream(ThreadingHTTPServer):
    """Answers all requests, and remembers them."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Upstream)
        self.got: list[tuple[str, str, list[tuple[str, str]], bytes]] = []
        self.arrived = threading.Event()

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, _, _, body in self.got]


class _Upstream(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Upstream

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        self.server.got.append((self.command, self.path, self.headers.items(), body))
        self.server.arrived.set()
        self.send_response_only(204 if self.command == "DELETE" else 200)
        self.send_header("ETag", '"tag"')
        if self.command != "DELETE":
            self.send_header("Content-Length", str(len(KEPT)))
        self.end_headers()
        if self.command not in ("HEAD", "DELETE"):
            self.wfile.write(KEPT)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815

    def handle(self) -> None:
        with suppress(ConnectionError):  # the other end is cut
            super().handle()

    def log_message(self, *_: object) -> None:
        """Nowhere."""


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(upstream: Upstream) -> Iterator[FaultProxy]:
    with FaultProxy(int(upstream.server_address[1])) as running:
        yield running


@pytest.fixture
def client(proxy: FaultProxy) -> Client:
    return client_of(proxy)


def client_of(proxy: FaultProxy) -> Client:
    return Client(proxy.port, Keys("AKIAPLANTED", "planted-secret"), "bucket")


def test_requests_are_passed_on_as_they_came(
    proxy: FaultProxy, client: Client, upstream: Upstream
) -> None:
    sent = client.send("PUT", "a b+c/ü", {"partNumber": "1", "x": ""}, BODY, {"X-Own": "kept"})
    method, path, fields, body = upstream.got[0]
    assert (method, path) == ("PUT", "/bucket/a%20b%2Bc/%C3%BC?partNumber=1&x=")
    assert (body, sent.fields["etag"]) == (BODY, '"tag"')
    assert ("x-own", "kept") in fields
    hosts = [value for name, value in fields if name.lower() == "host"]
    assert hosts == [f"127.0.0.1:{proxy.port}"]  # it is signed
    assert client.send("GET", "k").body == KEPT
    head = client.send("HEAD", "k")
    assert (head.body, head.fields["content-length"]) == (b"", str(len(KEPT)))
    assert client.send("DELETE", "k").status == 204
    assert [each.number for each in proxy.seen] == [1, 2, 3, 4]
    assert [each.method for each in proxy.seen] == ["PUT", "GET", "HEAD", "DELETE"]
    assert [(each.store_status, each.status) for each in proxy.seen] == [(200, 200)] * 3 + [
        (204, 204)
    ]
    assert (proxy.seen[0].path, proxy.seen[0].query) == ("/bucket/a b+c/ü", "partNumber=1&x=")


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        (faults.internal_error(), 500, "InternalError"),
        (faults.slow_down(7), 503, "SlowDown"),
        (faults.error_in_200(), 200, "InternalError"),
        (faults.conflict(), 409, "ConditionalRequestConflict"),
        (faults.precondition_failed(), 412, "PreconditionFailed"),
        (faults.expired_token(), 400, "ExpiredToken"),
    ],
    ids=lambda value: value.name if isinstance(value, Fault) else None,
)
def test_a_refusal_does_not_reach_the_store(
    proxy: FaultProxy, client: Client, upstream: Upstream, fault: Fault, status: int, code: str
) -> None:
    with proxy.doing(fault):
        answer = client.send("PUT", "k", body=BODY)
    assert (answer.status, answer.code, upstream.got) == (status, code, [])
    assert answer.fields.get("retry-after") == ("7" if status == 503 else None)
    assert client.send("PUT", "k", body=BODY).code == ""
    assert [each.fault for each in proxy.seen] == [fault.name, ""]
    assert [each.store_status for each in proxy.seen] == [0, 200]


def test_a_request_that_is_cut_reaches_the_store_in_part(
    proxy: FaultProxy, client: Client, upstream: Upstream
) -> None:
    with proxy.doing(faults.cut_request(100)), pytest.raises(NO_ANSWER):
        client.send("PUT", "k", body=BODY)
    assert upstream.arrived.wait(SECONDS_MAX)
    assert upstream.bodies == [BODY[:100]]
    assert (proxy.seen[0].store_status, proxy.seen[0].status) == (0, 0)


def test_an_answer_that_is_cut(proxy: FaultProxy, client: Client) -> None:
    with proxy.doing(faults.cut_answer(100)), pytest.raises(IncompleteRead) as caught:
        client.send("GET", "k")
    assert caught.value.partial == KEPT[:100]
    assert (proxy.seen[0].store_status, proxy.seen[0].status) == (200, 0)


def test_an_answer_that_is_lost(proxy: FaultProxy, client: Client, upstream: Upstream) -> None:
    with proxy.doing(faults.lost_answer()), pytest.raises(NO_ANSWER):
        client.send("PUT", "k", body=BODY)
    assert upstream.bodies == [BODY]
    assert (proxy.seen[0].store_status, proxy.seen[0].status) == (200, 0)


def give_up(proxy: FaultProxy, client: Client, until: threading.Event) -> None:
    """A client that goes away when it has waited for long enough."""
    with proxy.doing(faults.silence(until)) as rule, closing(client.begin("PUT", "k", body=BODY)):
        assert rule.happened.wait(SECONDS_MAX)


def test_silence_lasts_until_its_end_and_the_request_is_late(
    proxy: FaultProxy, client: Client, upstream: Upstream
) -> None:
    until = threading.Event()
    give_up(proxy, client, until)
    assert upstream.got == []
    until.set()
    assert upstream.arrived.wait(SECONDS_MAX)
    assert upstream.bodies == [BODY]


def test_silence_ends_with_the_proxy(upstream: Upstream) -> None:
    with FaultProxy(int(upstream.server_address[1])) as proxy:
        give_up(proxy, client_of(proxy), threading.Event())
    assert upstream.got == []


@pytest.mark.parametrize("method", ["PUT", "GET"])
def test_slow_both_ways(proxy: FaultProxy, client: Client, method: str) -> None:
    began = time.monotonic()
    with proxy.doing(faults.slow(len(KEPT) / 0.5)):
        answer = client.send(method, "k", body=KEPT if method == "PUT" else b"")
    least = 0.9 if method == "PUT" else 0.4
    assert time.monotonic() - began > least  # it waits so often for so long
    assert answer.body == KEPT


def test_one_wrong_bit(proxy: FaultProxy, client: Client, upstream: Upstream) -> None:
    with proxy.doing(faults.wrong_answer(-1)):
        answer = client.send("GET", "k")
    assert answer.body == KEPT[:-1] + bytes([KEPT[-1] ^ 1])
    with proxy.doing(faults.wrong_request(3)):
        client.send("PUT", "k", body=BODY)
    assert upstream.bodies[1] == BODY[:3] + bytes([BODY[3] ^ 1]) + BODY[4:]


@pytest.mark.parametrize(("share", "byte", "bit"), [(0.0, 0, 0), (0.5, 1, 0), (0.999999, -1, 7)])
def test_one_flipped_bit(
    proxy: FaultProxy, client: Client, upstream: Upstream, share: float, byte: int, bit: int
) -> None:
    def flipped(body: bytes) -> bytes:
        changed = bytearray(body)
        changed[len(body) // 2 if byte > 0 else byte] ^= 1 << bit
        return bytes(changed)

    with proxy.doing(faults.flipped_answer(share)):
        assert client.send("GET", "k").body == flipped(KEPT)
    with proxy.doing(faults.flipped_request(share)):
        client.send("PUT", "k", body=BODY)
    assert upstream.bodies[-1] == flipped(BODY)


def test_a_script_counts_the_requests_that_match(proxy: FaultProxy, client: Client) -> None:
    is_part = matching("PUT", "/bucket/run/*", "partNumber=")
    with proxy.doing(faults.internal_error(), is_part, skipped=1, times=2) as rule:
        codes = [client.send("PUT", "run/k", {"partNumber": "1"}).status for _ in range(5)]
        for method, key, query in (("GET", "run/k", "partNumber"), ("PUT", "k", "partNumber")):
            assert client.send(method, key, {query: "1"}).status == 200
        assert client.send("PUT", "run/k").status == 200
    assert codes == [200, 500, 500, 200, 200]
    assert (rule.matched, rule.hits) == (5, 2)
    with proxy.doing(faults.internal_error(), times=None) as always:
        assert [client.send("GET", "k").status for _ in range(3)] == [500, 500, 500]
    assert always.hits == 3
    assert client.send("GET", "k").status == 200


def test_a_fault_that_does_not_happen_is_an_error(proxy: FaultProxy, client: Client) -> None:
    with (
        pytest.raises(AssertionError, match="500 InternalError did not happen: 1 requests"),
        proxy.doing(faults.internal_error(), matching("PUT"), skipped=1),
    ):
        client.send("PUT", "k")


def test_a_fault_that_cannot_happen_is_an_error(upstream: Upstream) -> None:
    proxy = FaultProxy(int(upstream.server_address[1]))
    client = client_of(proxy)
    nothing_to_change = proxy.doing(faults.wrong_request())
    with pytest.raises(IndexError), proxy, nothing_to_change, pytest.raises(NO_ANSWER):
        client.send("PUT", "k", body=b"")


def send_in_chunks(port: int) -> None:
    with closing(HTTPConnection("127.0.0.1", port, timeout=SECONDS_MAX)) as connection:
        connection.request("PUT", "/bucket/k", iter([BODY]), encode_chunked=True)
        connection.getresponse()


def test_a_request_in_chunks_is_not_understood(upstream: Upstream) -> None:
    proxy = FaultProxy(int(upstream.server_address[1]))
    with pytest.raises(NotImplementedError, match="in chunks"), proxy, pytest.raises(NO_ANSWER):
        send_in_chunks(proxy.port)


def test_no_secret_is_kept(proxy: FaultProxy, client: Client, upstream: Upstream) -> None:
    query = {"X-Amz-Signature": "planted-1", "X-Amz-Credential": "planted-2", "list-type": "2"}
    client.send("GET", "k", {**query, "X-Amz-Security-Token": "planted-3"}, b"planted-4")
    assert "planted-3" in upstream.got[0][1]
    assert "AKIAPLANTED" in str(upstream.got[0][2])
    assert "list-type=2" in proxy.seen[0].query
    assert "planted" not in repr(proxy.seen).lower()
    assert "planted-secret" not in repr(client)


def test_a_store_that_is_away_gives_no_answer() -> None:
    with Upstream() as gone:
        port = int(gone.server_address[1])
    with FaultProxy(port) as proxy:
        with pytest.raises(NO_ANSWER):
            client_of(proxy).send("GET", "k")
        assert (proxy.seen[0].store_status, proxy.seen[0].status) == (0, 0)


def test_the_checksum() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # RFC 3720, B.4 has it with others
    assert crc32c(b"6789", crc32c(b"12345")) == 0xE3069283
