"""An S3 server on loopback that costs as little as it can: `python -m lab.experiments.stores.sink`.

It prints its port. What is put into the bucket `sink` is thrown away inside the kernel, but for
small objects; the bucket `kept` keeps all in memory and sends it from there. It checks neither
signatures nor checksums: the client is measured, not the store.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

SINK, KEPT = "sink", "kept"
COUNTS = "/-/counts"  # bytes of bodies so far, as JSON
DISCARDED_FROM = 1 << 20  # bytes of a body, in the bucket `sink`
BUFFER = 4 << 20
SOCKET_BUFFER = 4 << 20
NO_FIELDS: Mapping[str, str] = {}
XML = {"content-type": "application/xml"}
RANGE = re.compile(r"bytes=(\d*)-(\d*)")
MODIFIED = "Sat, 01 Jan 2028 00:00:00 GMT"
MODIFIED_ISO = "2028-01-01T00:00:00.000Z"
SUM = "x-amz-checksum-crc32c"


@dataclass
class Stored:
    """Bytes in files that are memory, one after the other; none of them if they were discarded."""

    size: int = 0
    pieces: list[tuple[int, int]] = field(default_factory=list)  # descriptor, bytes
    tag: str = ""
    checksum: str = ""

    def within(self, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Descriptor, offset and bytes of each piece in this range."""
        at = 0
        for descriptor, size in self.pieces:
            first, last = max(begin, at), min(end, at + size)
            if first < last:
                yield descriptor, first - at, last - first
            at += size


class Store:
    """All objects by bucket and key, and open uploads. Any thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.objects: dict[str, Stored] = {}
        self.uploads: dict[str, dict[int, Stored]] = {}
        self.received = self.sent = self.requests = 0
        self._numbers = itertools.count(1)

    def new_name(self) -> str:
        return f"{next(self._numbers):032x}"

    def count(self, received: int = 0, sent: int = 0, requests: int = 0) -> None:
        with self.lock:
            self.received += received
            self.sent += sent
            self.requests += requests

    def complete(self, name: str, upload: str, checksum: str) -> Stored | None:
        with self.lock:
            parts = self.uploads.pop(upload, None)
            if parts is None:
                return None
            ordered = [parts[number] for number in sorted(parts)]
            pieces = [piece for part in ordered for piece in part.pieces]
            whole = Stored(sum(part.size for part in ordered), pieces, self.new_name(), checksum)
            self.objects[name] = whole
            return whole

    def remove(self, name: str) -> None:
        with self.lock:
            found = self.objects.pop(name, None)
        for descriptor, _ in found.pieces if found else ():
            os.close(descriptor)


@dataclass(frozen=True)
class Request:
    method: str
    path: str  # "/bucket/key", decoded
    query: Mapping[str, str]
    fields: Mapping[str, str]

    @property
    def bucket(self) -> str:
        return self.path.split("/")[1]

    @property
    def key(self) -> str:
        return self.path.partition(f"/{self.bucket}")[2].strip("/")


class Connection:
    """One client's, until it ends it. A thread of its own."""

    def __init__(self, wire: socket.socket, store: Store) -> None:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._wire, self._store = wire, store
        self._left = b""  # received, and not yet used
        self._buffer = bytearray(BUFFER)

    def serve(self) -> None:
        with self._wire:
            try:
                while (request := self._request()) is not None:
                    self._store.count(requests=1)
                    self._answer(request)
            except (ConnectionError, OSError):
                return

    def _request(self) -> Request | None:
        while (end := self._left.find(b"\r\n\r\n")) < 0:
            more = self._wire.recv(1 << 16)
            if not more:
                return None
            self._left += more
        head, self._left = self._left[:end].decode("latin-1"), self._left[end + 4 :]
        first, *lines = head.split("\r\n")
        method, target, _ = first.split(" ")
        split = urlsplit(target)
        query = dict(parse_qsl(split.query, keep_blank_values=True))
        pairs = (line.partition(":") for line in lines)
        fields = {name.strip().lower(): value.strip() for name, _, value in pairs}
        if fields.get("expect", "").lower() == "100-continue":
            self._wire.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        return Request(method, unquote(split.path), query, fields)

    # Bodies

    def _discard(self, size: int) -> None:
        taken = min(size, len(self._left))
        self._left, size = self._left[taken:], size - taken
        flags = socket.MSG_TRUNC | socket.MSG_WAITALL  # of TCP: not even copied
        while size > 0:
            got = self._wire.recv_into(self._buffer, min(size, BUFFER), flags)
            if got == 0:
                raise ConnectionResetError
            size -= got

    def _read(self, size: int) -> bytes:
        taken = min(size, len(self._left))
        body = bytearray(size)
        body[:taken], self._left = self._left[:taken], self._left[taken:]
        view = memoryview(body)
        while taken < size:
            got = self._wire.recv_into(view[taken:], size - taken)
            if got == 0:
                raise ConnectionResetError
            taken += got
        return bytes(body)

    def _line(self) -> bytes:
        while (end := self._left.find(b"\r\n")) < 0:
            more = self._wire.recv(1 << 16)
            if not more:
                raise ConnectionResetError
            self._left += more
        line, self._left = self._left[:end], self._left[end + 2 :]
        return line

    def _chunks(self, take: Callable[[int], bytes | None]) -> Iterator[bytes]:
        """A body of the coding `chunked`, which ends with trailers."""
        while (size := int(self._line().split(b";")[0], 16)) > 0:
            yield take(size) or b""
            self._line()
        while self._line():
            pass

    def _body(self, request: Request) -> Stored:
        """Of a PUT."""
        size = int(request.fields.get("content-length", 0))
        decoded = request.fields.get("x-amz-decoded-content-length")
        is_chunked = request.fields.get("transfer-encoding", "") == "chunked"
        whole = int(decoded or size)
        self._store.count(received=whole)
        tag, checksum = self._store.new_name(), request.fields.get(SUM, "")
        if request.bucket == SINK and whole >= DISCARDED_FROM:
            if is_chunked:
                list(self._chunks(self._discard))
            else:
                self._discard(size)
            return Stored(whole, [], tag, checksum)
        body = b"".join(self._chunks(self._read)) if is_chunked else self._read(size)
        if decoded is not None and len(body) != whole:
            body = without_frames(body)
        if decoded is not None and len(body) != whole:
            raise ValueError(f"{len(body)} bytes came of {whole}")
        descriptor = os.memfd_create("object")
        view = memoryview(body)
        while view:
            view = view[os.write(descriptor, view) :]
        return Stored(len(body), [(descriptor, len(body))], tag, checksum)

    # Answers

    def _say(self, status: int, body: bytes = b"", fields: Mapping[str, str] = NO_FIELDS) -> None:
        told = {"content-length": str(len(body)), **fields}
        lines = "".join(f"{name}: {value}\r\n" for name, value in told.items())
        self._wire.sendall(f"HTTP/1.1 {status} S\r\n{lines}\r\n".encode() + body)

    def _fail(self, status: int, code: str) -> None:
        self._say(status, f"<Error><Code>{code}</Code></Error>".encode())

    def _answer(self, request: Request) -> None:
        if request.path == COUNTS:
            counts = {"received": self._store.received, "sent": self._store.sent,
                      "requests": self._store.requests}  # fmt: skip
            return self._say(200, json.dumps(counts).encode())
        if not request.key:
            return self._of_bucket(request)
        of_method = {"PUT": self._put, "POST": self._post, "DELETE": self._delete}
        return of_method.get(request.method, self._get)(request)

    def _of_bucket(self, request: Request) -> None:
        self._read(int(request.fields.get("content-length", 0)))
        if request.method != "GET" or "location" in request.query or "uploads" in request.query:
            root = "ListMultipartUploadsResult"
            return self._say(200, f"<{root}><IsTruncated>false</IsTruncated></{root}>".encode())
        prefix, delimiter = (request.query.get(name, "") for name in ("prefix", "delimiter"))
        with self._store.lock:
            start = f"{request.bucket}/"
            found = {name[len(start) :]: one for name, one in sorted(self._store.objects.items())
                     if name.startswith(start + prefix)}  # fmt: skip
        return self._say(200, listing(found, prefix, delimiter), XML)

    def _copy(self, request: Request, source: str) -> None:
        """How DCP renames."""
        with self._store.lock:
            found = self._store.objects.get(unquote(source).strip("/"))
            if found is None:
                return self._fail(404, "NoSuchKey")
            pieces = [(os.dup(descriptor), size) for descriptor, size in found.pieces]
            copied = replace(found, pieces=pieces)
            self._store.objects[f"{request.bucket}/{request.key}"] = copied
        root = "CopyObjectResult"
        about = f"<ETag>&quot;{found.tag}&quot;</ETag><LastModified>{MODIFIED_ISO}</LastModified>"
        return self._say(200, f"<{root}>{about}</{root}>".encode(), XML)

    def _put(self, request: Request) -> None:
        stored = self._body(request)
        if source := request.fields.get("x-amz-copy-source"):
            return self._copy(request, source)
        name = f"{request.bucket}/{request.key}"
        with self._store.lock:
            if "uploadId" in request.query:
                parts = self._store.uploads.get(request.query["uploadId"])
                if parts is None:
                    return self._fail(404, "NoSuchUpload")
                parts[int(request.query["partNumber"])] = stored
            elif "if-none-match" in request.fields and name in self._store.objects:
                return self._fail(412, "PreconditionFailed")
            else:
                self._store.objects[name] = stored
        fields = {"ETag": f'"{stored.tag}"'} | ({SUM: stored.checksum} if stored.checksum else {})
        return self._say(200, fields=fields)

    def _post(self, request: Request) -> None:
        self._read(int(request.fields.get("content-length", 0)))
        if "uploads" in request.query:
            upload = self._store.new_name()
            with self._store.lock:
                self._store.uploads[upload] = {}
            root = "InitiateMultipartUploadResult"
            text = f"<Bucket>{request.bucket}</Bucket><Key>{request.key}</Key>"
            text += f"<UploadId>{upload}</UploadId>"
        else:
            name = f"{request.bucket}/{request.key}"
            checksum = request.fields.get(SUM, "")
            whole = self._store.complete(name, request.query["uploadId"], checksum)
            if whole is None:
                return self._fail(404, "NoSuchUpload")
            root = "CompleteMultipartUploadResult"
            text = f"<Bucket>{request.bucket}</Bucket><Key>{request.key}</Key>"
            text += f"<ETag>&quot;{whole.tag}&quot;</ETag>"
        body = f"<{root}>{text}</{root}>".encode()
        return self._say(200, body, XML)

    def _delete(self, request: Request) -> None:
        self._store.uploads.pop(request.query.get("uploadId", ""), None)
        if "uploadId" not in request.query:
            self._store.remove(f"{request.bucket}/{request.key}")
        return self._say(204)

    def _get(self, request: Request) -> None:
        with self._store.lock:
            stored = self._store.objects.get(f"{request.bucket}/{request.key}")
        is_head = request.method == "HEAD"
        if stored is None:
            return self._say(404) if is_head else self._fail(404, "NoSuchKey")
        begin, end, fields = 0, stored.size, {"ETag": f'"{stored.tag}"', "last-modified": MODIFIED}
        asked = RANGE.fullmatch(request.fields.get("range", ""))
        if asked:
            if asked[1]:
                begin, end = int(asked[1]), min(stored.size, int(asked[2] or stored.size) + 1)
            else:
                begin = max(0, stored.size - int(asked[2]))
            if begin >= stored.size:
                return self._fail(416, "InvalidRange")
            fields["content-range"] = f"bytes {begin}-{end - 1}/{stored.size}"
        elif stored.checksum and "x-amz-checksum-mode" in request.fields:
            fields |= {SUM: stored.checksum, "x-amz-checksum-type": "FULL_OBJECT"}
        pieces = list(stored.within(begin, end))
        if not is_head and sum(size for _, _, size in pieces) != end - begin:
            return self._fail(500, "Discarded")
        fields |= {"accept-ranges": "bytes", "content-type": "binary/octet-stream"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        head = f"HTTP/1.1 {206 if asked else 200} S\r\ncontent-length: {end - begin}\r\n{lines}\r\n"
        self._wire.sendall(head.encode())
        if is_head:
            return None
        for descriptor, at, size in pieces:
            sent = 0
            while sent < size:
                sent += os.sendfile(self._wire.fileno(), descriptor, at + sent, size - sent)
        return self._store.count(sent=end - begin)


def without_frames(body: bytes) -> bytes:
    """The bytes in a body of the coding aws-chunked."""
    found: list[bytes] = []
    at = 0
    while True:
        line_end = body.index(b"\r\n", at)
        size = int(body[at:line_end].split(b";")[0], 16)
        if size == 0:
            return b"".join(found)
        found.append(body[line_end + 2 : line_end + 2 + size])
        at = line_end + 2 + size + 2


def listing(found: Mapping[str, Stored], prefix: str, delimiter: str) -> bytes:
    keys, directories = [], []
    for key, stored in found.items():
        below, cut, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
        if cut:
            directories.append(prefix + below + cut)
            continue
        about = f"<LastModified>{MODIFIED_ISO}</LastModified><Size>{stored.size}</Size>"
        keys.append(f"<Contents><Key>{escape(key)}</Key>{about}"
                    f"<ETag>&quot;{stored.tag}&quot;</ETag></Contents>")  # fmt: skip
    groups = [f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>"
              for one in dict.fromkeys(directories)]  # fmt: skip
    count = f"<KeyCount>{len(keys) + len(groups)}</KeyCount>"
    inner = f"<IsTruncated>false</IsTruncated>{count}{''.join(keys)}{''.join(groups)}"
    return f"<ListBucketResult>{inner}</ListBucketResult>".encode()


def main() -> int:
    """Serves until its stdin ends."""
    store = Store()
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    print(listener.getsockname()[1], flush=True)

    def accept() -> None:
        while True:
            wire, _ = listener.accept()
            threading.Thread(target=Connection(wire, store).serve, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
