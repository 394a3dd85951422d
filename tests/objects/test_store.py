"""The promises of S3 that tiers rest on, kept by a real store, with and without faults."""

from __future__ import annotations

import threading
from http.client import HTTPException
from pathlib import Path

import pytest

from . import faults, seaweed
from .checksum import FIELD, checked, crc32c, in_base64
from .fault_proxy import FaultProxy
from .seaweed import Seaweed, StoreError
from .signed_client import Client, Keys

SECONDS_MAX = 30.0  # for waits that must not hang
BODY = b"0123456789" * 1000
PART = bytes(5 << 20)  # the smallest that may have another behind it
NO_ANSWER = (OSError, HTTPException)


def test_a_body_with_another_checksum_is_refused(store: Seaweed) -> None:
    client, key = store.client(), store.new_prefix()
    answer = client.send("PUT", key, body=BODY, fields=checked(BODY[:-1]))
    assert (answer.status, answer.code) == (400, "BadDigest")
    assert client.names(key) == []
    assert client.send("PUT", key, body=BODY, fields=checked(BODY)).status == 200
    head = client.send("HEAD", key, fields={"x-amz-checksum-mode": "ENABLED"})
    assert (head.status, head.fields[FIELD]) == (200, checked(BODY)[FIELD])


def test_an_upload_in_parts_is_checked_as_a_whole(store: Seaweed) -> None:
    client, key = store.client(), store.new_prefix()
    kind = {"x-amz-checksum-algorithm": "CRC32C", "x-amz-checksum-type": "FULL_OBJECT"}
    upload = client.begin_upload(key, kind)
    assert client.open_uploads(key) == [(key, upload)]
    etags = []
    for number, part in enumerate((PART, BODY), 1):
        query = {"partNumber": str(number), "uploadId": upload}
        refused = client.send("PUT", key, query, part, checked(b"others"))
        assert (refused.status, refused.code) == (400, "BadDigest")
        etags.append(client.send("PUT", key, query, part, checked(part)).fields["etag"])
    right = crc32c(BODY, crc32c(PART))
    for crc, code in ((right ^ 1, "BadDigest"), (right, "")):
        of_whole = {"x-amz-checksum-type": "FULL_OBJECT", FIELD: in_base64(crc)}
        answer = client.complete(key, upload, etags, of_whole)
        assert (answer.status, answer.code) == (400 if code else 200, code)
        assert client.names(key) == ([] if code else [key])
    assert client.send("GET", key).body == PART + BODY
    assert client.open_uploads(key) == []


def test_an_upload_that_is_aborted_is_gone(store: Seaweed) -> None:
    client, key = store.client(), store.new_prefix()
    upload = client.begin_upload(key, {})
    assert client.send("DELETE", key, {"uploadId": upload}).status == 204
    assert client.open_uploads(key) == []


def test_a_name_is_given_once(store: Seaweed) -> None:
    client, key = store.client(), store.new_prefix()
    once = {"if-none-match": "*"}
    assert client.send("PUT", key, body=BODY, fields=once).status == 200
    answer = client.send("PUT", key, body=b"other", fields=once)
    assert (answer.status, answer.code) == (412, "PreconditionFailed")
    assert client.send("GET", key).body == BODY


def test_wrong_keys_and_a_missing_bucket_are_refused(store: Seaweed) -> None:
    wrong = Client(store.port, Keys(store.keys.access, "wrong"), store.bucket)
    assert wrong.send("PUT", store.new_prefix(), body=BODY).status == 403
    missing = Client(store.port, store.keys, "no-such-bucket")
    answer = missing.send("PUT", "key", body=BODY)
    assert (answer.status, answer.code) == (404, "NoSuchBucket")


def test_signatures_survive_the_proxy(store: Seaweed) -> None:
    key = f"{store.new_prefix()}/a b+c"
    with FaultProxy(store.port) as proxy:
        client = store.client(proxy.port)
        assert client.send("PUT", key, {"x": "1 2"}, BODY, checked(BODY)).status == 200
        assert client.send("GET", key).body == BODY
        wrong = Client(proxy.port, Keys(store.keys.access, "wrong"), store.bucket)
        assert wrong.send("GET", key).status == 403


def test_the_store_refuses_bytes_that_change_on_the_way(store: Seaweed) -> None:
    key = store.new_prefix()
    with FaultProxy(store.port) as proxy, proxy.doing(faults.wrong_request(17)):
        answer = store.client(proxy.port).send("PUT", key, body=BODY, fields=checked(BODY))
    assert (answer.status, answer.code) == (400, "BadDigest")
    assert store.client().names(key) == []


def test_a_request_that_breaks_off_leaves_nothing(store: Seaweed) -> None:
    key = store.new_prefix()
    with FaultProxy(store.port) as proxy, proxy.doing(faults.cut_request(4000)):
        client = store.client(proxy.port)
        with pytest.raises(NO_ANSWER):
            client.send("PUT", key, body=BODY)
    assert store.client().names(key) == []


def test_412_after_a_lost_answer_is_our_own_success(store: Seaweed) -> None:
    key, once = store.new_prefix(), {"if-none-match": "*"}
    with FaultProxy(store.port) as proxy:
        client = store.client(proxy.port)
        with proxy.doing(faults.lost_answer()), pytest.raises(NO_ANSWER):
            client.send("PUT", key, body=BODY, fields=once)
        assert client.send("PUT", key, body=BODY, fields=once).status == 412
    assert store.client().send("GET", key).body == BODY


def test_404_does_not_prove_that_nothing_will_be_written(store: Seaweed) -> None:
    client, key, until = store.client(), store.new_prefix(), threading.Event()
    with FaultProxy(store.port) as proxy:
        with proxy.doing(faults.silence(until)) as rule:
            impatient = store.client(proxy.port).begin("PUT", key, body=BODY)
            assert rule.happened.wait(SECONDS_MAX)
            impatient.close()
        assert client.send("GET", key).status == 404
        until.set()
    assert client.send("GET", key).body == BODY  # the proxy has waited for it


def test_a_killed_store_comes_back_with_all_that_it_had(store: Seaweed) -> None:
    client, prefix = store.client(), store.new_prefix()
    keys = [f"{prefix}/{number}" for number in range(8)]
    for key in keys:
        assert client.send("PUT", key, body=BODY + key.encode()).status == 200
    upload = client.begin_upload(f"{prefix}/open", {})
    store.kill()
    with pytest.raises(ConnectionRefusedError):
        client.send("GET", keys[0])
    store.restart()
    # Without another try: restart() returns when it is ready.
    assert [client.send("GET", key).body for key in keys] == [BODY + key.encode() for key in keys]
    assert client.names(prefix) == keys
    assert client.open_uploads(prefix) == [(f"{prefix}/open", upload)]
    assert client.send("PUT", keys[0], body=b"new").status == 200


def fake(path: Path, script: str) -> Path:
    program = path / "weed"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def test_a_store_that_ends_or_hangs_is_an_error_with_the_end_of_its_log(tmp_path: Path) -> None:
    ends = Seaweed(fake(tmp_path, "echo a reason; exit 3"))
    with pytest.raises(StoreError, match="it ended with status 3\na reason"), ends:
        pass
    hangs = Seaweed(fake(tmp_path, "echo a reason; exec sleep 1000"), ready_seconds_max=0.5)
    with (
        pytest.raises(StoreError, match=r"not ready after .* s, PUT bucket: [^\n]*\na reason"),
        hangs,
    ):
        pass


def test_another_try_if_a_port_is_taken(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    script = f"echo $* >> {starts}; echo listen tcp: bind: address already in use; exit 1"
    with pytest.raises(StoreError, match="address already in use"), Seaweed(fake(tmp_path, script)):
        pass
    assert len(set(starts.read_text().splitlines())) == seaweed.STARTS_MAX


def test_without_the_program_the_tests_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seaweed, "find_program", lambda: None)
    with pytest.raises(pytest.skip.Exception, match="LEFT OUT: SeaweedFS"), seaweed.started():
        pass
