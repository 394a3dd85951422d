"""A small client of S3: one request at a time, signed (version 4), never tried again."""

from __future__ import annotations

import datetime
import hashlib
import hmac
import http.client
import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from urllib.parse import quote
from xml.sax.saxutils import unescape

SECONDS_MAX = 60.0  # of silence
REGION = "us-east-1"


@dataclass(frozen=True)
class Keys:
    """The secret one must appear nowhere."""

    access: str
    secret: str = field(repr=False)


@dataclass(frozen=True)
class Answer:
    """A whole one; the names of its fields are in lower case."""

    status: int
    fields: Mapping[str, str]
    body: bytes

    def texts(self, tag: str) -> list[str]:
        found = re.findall(f"<{tag}>(.*?)</{tag}>", self.body.decode(errors="replace"), re.DOTALL)
        return [unescape(text, {"&#34;": '"', "&quot;": '"'}) for text in found]

    @property
    def code(self) -> str:
        """The store's name of the error."""
        return next(iter(self.texts("Code")), "")


@dataclass(frozen=True)
class Client:
    """Of one bucket. OSError or HTTPException: no whole answer came."""

    port: int
    keys: Keys
    bucket: str
    seconds_max: float = SECONDS_MAX

    def begin(
        self,
        method: str,
        key: str = "",
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        fields: Mapping[str, str] | None = None,
    ) -> http.client.HTTPConnection:
        """The request is on its way. Without a key it is one to the bucket."""
        target = _encoded(f"/{self.bucket}" + (f"/{key}" if key else ""), "/")
        words = sorted((_encoded(k), _encoded(v)) for k, v in (query or {}).items())
        text = "&".join(f"{name}={value}" for name, value in words)
        sent = _signed(self, method, target, text, fields or {})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.seconds_max)
        try:
            connection.request(method, f"{target}?{text}" if text else target, body, sent)
        except BaseException:
            connection.close()
            raise
        return connection

    def send(
        self,
        method: str,
        key: str = "",
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        fields: Mapping[str, str] | None = None,
    ) -> Answer:
        begun = self.begin(method, key, query, body, fields)
        with closing(begun), begun.getresponse() as response:
            got = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, got, response.read())

    def names(self, prefix: str = "") -> list[str]:
        """All keys, of up to a thousand."""
        answer = self.send("GET", query={"list-type": "2", "prefix": prefix})
        assert answer.status == 200, answer
        assert answer.texts("IsTruncated") == ["false"]
        return answer.texts("Key")

    def open_uploads(self, prefix: str = "") -> list[tuple[str, str]]:
        """Keys and identifiers of multipart uploads that are neither completed nor aborted."""
        answer = self.send("GET", query={"uploads": "", "prefix": prefix})
        assert answer.status == 200, answer
        return list(zip(answer.texts("Key"), answer.texts("UploadId"), strict=True))

    def begin_upload(self, key: str, fields: Mapping[str, str]) -> str:
        answer = self.send("POST", key, {"uploads": ""}, fields=fields)
        assert answer.status == 200, answer
        return answer.texts("UploadId")[0]

    def complete(
        self, key: str, upload: str, etags: Sequence[str], fields: Mapping[str, str]
    ) -> Answer:
        parts = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"
            for number, etag in enumerate(etags, 1)
        )
        body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        return self.send("POST", key, {"uploadId": upload}, body, fields)


def _encoded(text: str, kept: str = "") -> str:
    return quote(text, safe=f"-_.~{kept}")


def _signed(
    client: Client, method: str, target: str, query: str, fields: Mapping[str, str]
) -> dict[str, str]:
    """All fields to send; all of them are signed."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    sent = {name.lower(): value for name, value in fields.items()}
    sent["host"] = f"127.0.0.1:{client.port}"
    sent |= {"x-amz-date": now, "x-amz-content-sha256": "UNSIGNED-PAYLOAD"}
    names = ";".join(sorted(sent))
    lines = [f"{name}:{sent[name]}" for name in sorted(sent)]
    request = "\n".join([method, target, query, *lines, "", names, "UNSIGNED-PAYLOAD"])
    scope = f"{now[:8]}/{REGION}/s3/aws4_request"
    hashed = hashlib.sha256(request.encode()).hexdigest()
    key = f"AWS4{client.keys.secret}".encode()
    for word in scope.split("/"):
        key = hmac.digest(key, word.encode(), "sha256")
    signature = hmac.digest(
        key, f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashed}".encode(), "sha256"
    ).hex()
    sent["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={client.keys.access}/{scope}, "
        f"SignedHeaders={names}, Signature={signature}"
    )
    return sent
