"""Runs with a tier in a real store: flushed through faults, restored from the store alone."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import deepfreeze as df
from deepfreeze.base import program
from examples.demo.program import run_program

from . import faults
from .fault_proxy import When, matching
from .faults import Fault
from .kills import kill_in_flush
from .stored_run import LARGE, SECONDS, StoredRun, state_at, values_of

SMALL = 1 << 16  # bytes: one PUT
PART = matching("PUT", "*.safetensors", "partNumber=")
COMPLETE = matching("POST", "*.safetensors", "uploadId=")
BEGIN = matching("POST", "*.safetensors", "uploads")
MANIFEST = matching("PUT", "*/manifest.json")
DATA_READ = matching("GET", "*.safetensors")
LISTED = matching("GET", "*", "list-type=2")


def deepfreeze(*words: str) -> None:
    found = program.find()
    assert found is not None
    subprocess.run([found, *words], check=True, timeout=SECONDS)


def test_another_machine_goes_on_from_the_store_alone(run: StoredRun) -> None:
    run.save(1, 2)
    run.assert_whole()
    shutil.rmtree(run.near)
    state = state_at(0)
    with run.opened() as ckpt:
        assert [info.step for info in ckpt.checkpoints()] == [2, 1]
        assert ckpt.restore(state) == 2
        assert values_of(state) == values_of(state_at(2))
        assert ckpt.last_restore is not None
        assert all(place.startswith(run.url) for place in ckpt.last_restore.tiers.values())
        handle = ckpt.save(3, state_at(3))
        assert handle is not None
        handle.wait("durable", SECONDS)
    assert run.restored() == (3, values_of(state_at(3)))


def test_a_base_that_does_not_change_is_sent_twice(run: StoredRun) -> None:
    """The further checkpoints refer to it, and go without it."""

    def state(step: int) -> dict[str, Any]:
        return {"base": state_at(7), "head": state_at(step, SMALL)}

    with run.opened() as ckpt:
        for step in range(1, 8):
            handle = ckpt.save(step, state(step))
            assert handle is not None
            handle.wait("durable", SECONDS)
            assert step < 7 or handle.status().bytes_shared > LARGE
    objects = run.objects()
    (shared,) = (name for name in objects if name.startswith("shared/"))
    assert len(objects[shared]) > LARGE
    newest = [size for name, size in sizes(objects) if name.startswith("step-000000000007")]
    assert sum(newest) < LARGE / 10
    deepfreeze("verify", run.url)
    shutil.rmtree(run.near)
    found = {"base": state_at(0), "head": state_at(0, SMALL)}
    with run.opened() as ckpt:
        assert ckpt.restore(found) == 7
        handle = ckpt.save(8, {"head": found["head"]})
        assert handle is not None
        handle.wait("durable", SECONDS)
    assert values_of(found["base"]) == values_of(state_at(7))
    assert values_of(found["head"]) == values_of(state_at(7, SMALL))
    deepfreeze("gc", run.url, "--keep-last", "1")
    assert not [name for name in run.objects() if name.startswith("shared/")]
    deepfreeze("verify", run.url)


def sizes(objects: dict[str, bytes]) -> list[tuple[str, int]]:
    return [(name, len(content)) for name, content in objects.items()]


AWAY = [  # in the middle of a restore
    (faults.internal_error(), "GET", "*.safetensors", "tried 8 times"),
    (faults.internal_error(), "HEAD", "*/manifest.json", "tried 8 times"),
    (faults.refused(403, "AccessDenied"), "HEAD", "*/manifest.json", "AccessDenied|403"),
    (faults.refused(403, "AccessDenied"), "GET", "*.safetensors", "AccessDenied|403"),
]


@pytest.mark.parametrize(("fault", "method", "key", "told"), AWAY)
def test_a_store_that_is_away_is_no_reason_for_an_older_step(
    run: StoredRun, fault: Fault, method: str, key: str, told: str
) -> None:
    """The near copy of the newest step is rotten, and the store may have a good one."""
    run.save(1, 2)
    (newest,) = run.near.glob("step-000000000002-*/*.safetensors")
    whole = newest.read_bytes()
    newest.write_bytes(whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:])
    state = state_at(0)
    away = matching(method, key)
    with run.opened() as ckpt:
        with (
            run.proxy.doing(fault, away, times=None),
            pytest.raises(df.CheckpointError, match=told),
        ):
            ckpt.restore(state)
        assert ckpt.restore(state) == 2
    assert values_of(state) == values_of(state_at(2))


def test_a_program_brings_the_keys_itself(run: StoredRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nobody else's are used, in no part of a restore."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    asked = []

    def keys() -> dict[str, object]:
        asked.append(1)
        return {"access_key": run.store.keys.access, "secret_key": run.store.keys.secret}

    with run.opened(credentials=keys) as ckpt:
        handle = ckpt.save(1, state_at(1))
        assert handle is not None
        handle.wait("durable", SECONDS)
    state = state_at(0)
    with run.opened("elsewhere", keys) as ckpt:
        assert ckpt.restore(state) == 1
    assert values_of(state) == values_of(state_at(1))
    assert len(asked) == 2  # they have no end
    with pytest.raises(df.CheckpointError, match="TypeError: credentials: a list"):
        run.opened("third", lambda: ["no", "keys"])
    with pytest.raises(df.CheckpointError, match="there are none"):
        run.opened("third")


def test_a_tier_names_its_server_itself(run: StoredRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no other one is asked, in no part of a restore."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "ftp://wrong")
    with run.opened(endpoint=run.endpoint) as ckpt:
        handle = ckpt.save(1, state_at(1))
        assert handle is not None
        handle.wait("durable", SECONDS)
    state = state_at(0)
    with run.opened("elsewhere", endpoint=run.endpoint) as ckpt:
        assert ckpt.restore(state) == 1
    assert values_of(state) == values_of(state_at(1))
    with pytest.raises(df.CheckpointError, match="neither http:// nor https://"):
        run.opened("third")


def test_an_agent_uses_the_server_of_the_training(
    run: StoredRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent's own environment names another one."""
    place = tmp_path / "agent"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")  # nothing listens
    deepfreeze("agent", "--background", "--directory", str(place))
    try:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", run.endpoint)
        with run.proxy.doing(faults.internal_error(), PART, times=None) as rule:
            with run.opened(agent=place) as ckpt:
                handle = ckpt.save(1, state_at(1))
                assert handle is not None
                handle.wait("local", SECONDS)
            while rule.hits == 0:
                time.sleep(0.01)
        assert run.objects().keys() != run.files().keys()  # the rest is the agent's work
    finally:
        deepfreeze("agent", "--drain", "--deadline", "60", "--directory", str(place))
    assert run.restored() == (1, values_of(state_at(1)))


IN_FLUSH = [
    (PART, (faults.internal_error(), faults.slow_down(), faults.expired_token())),
    (PART, (faults.cut_request(1 << 20), faults.cut_answer(0), faults.lost_answer())),
    (PART, (faults.slow(20e6),)),
    (PART, (faults.wrong_request(12345),)),
    (BEGIN, (faults.internal_error(), faults.lost_answer())),
    (COMPLETE, (faults.internal_error(), faults.error_in_200(), faults.conflict())),
    (COMPLETE, (faults.lost_answer(),)),
    (COMPLETE, (faults.cut_answer(10),)),
    (COMPLETE, (faults.wrong_request(-9),)),
    (MANIFEST, (faults.internal_error(), faults.conflict(), faults.cut_request(10))),
    (MANIFEST, (faults.precondition_failed(),)),
    (MANIFEST, (faults.lost_answer(),)),
    (MANIFEST, (faults.wrong_request(10),)),
    (LISTED, (faults.internal_error(), faults.cut_answer(20))),
]
NAMES = {PART: "part", BEGIN: "begin", COMPLETE: "complete", MANIFEST: "manifest", LISTED: "list"}
NAMES |= {DATA_READ: "data"}


def named(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(fault.name for fault in value)
    return NAMES[value]  # type: ignore[index]


@pytest.mark.parametrize(("when", "one_by_one"), IN_FLUSH, ids=named)
def test_faults_in_a_flush_cost_time_alone(
    run: StoredRun, when: When, one_by_one: tuple[Fault, ...]
) -> None:
    """Each try meets the next one."""
    with ExitStack() as script:
        for fault in one_by_one:
            script.enter_context(run.proxy.doing(fault, when))
        run.save(1)
    run.assert_whole()
    assert run.restored() == (1, values_of(state_at(1)))


def test_a_flush_gets_through_if_every_third_request_fails(run: StoredRun) -> None:
    with run.proxy.doing(faults.internal_error(), lambda seen: seen.number % 3 == 0, times=None):
        run.save(1, 2)
    run.assert_whole()


def test_a_silent_store_holds_nobody_up(run: StoredRun) -> None:
    until = threading.Event()
    with run.opened() as ckpt:
        with run.proxy.doing(faults.silence(until), PART) as rule:
            first = ckpt.save(1, state_at(1))
            assert rule.happened.wait(SECONDS)
            second = ckpt.save(2, state_at(2))
            assert first is not None
            assert second is not None
            second.wait("local", SECONDS)
            assert not first.durable.done()
            until.set()
        first.wait("durable", SECONDS)
        second.wait("durable", SECONDS)
    run.assert_whole()


def test_a_store_that_is_killed_in_a_flush_and_started_again(run: StoredRun) -> None:
    kill_in_flush(run, 1, PART, skipped=0, acts=False)
    run.assert_whole()
    assert run.restored() == (1, values_of(state_at(1)))


@pytest.mark.parametrize("when", [DATA_READ, LISTED], ids=named)
def test_faults_in_a_restore_cost_time_alone(run: StoredRun, when: When) -> None:
    run.save(1)
    with (
        run.proxy.doing(faults.internal_error(), when),
        run.proxy.doing(faults.cut_answer(5), when),
        run.proxy.doing(faults.slow_down(), when),
    ):
        assert run.restored() == (1, values_of(state_at(1)))


def test_bytes_that_always_differ_on_the_way_are_never_given_back(run: StoredRun) -> None:
    run.save(1)
    state = state_at(0)
    always = run.proxy.doing(faults.wrong_answer(-1), DATA_READ, times=None)
    with run.opened("elsewhere") as ckpt, always, pytest.raises(df.CheckpointError):
        ckpt.restore(state)


@pytest.mark.parametrize("size", [SMALL, 18 << 20])
def test_a_copy_that_rots_in_the_store_is_never_given_back(run: StoredRun, size: int) -> None:
    run.save(1, 2, size=size)
    (newest,) = [
        name
        for name in run.objects()
        if name.startswith("step-000000000002-") and name.endswith(".safetensors")
    ]
    rotten = bytearray(run.objects()[newest])
    rotten[-5] ^= 1
    assert run.client.send("PUT", f"{run.prefix}/{newest}", body=bytes(rotten)).status == 200
    assert run.restored("near", size) == (2, values_of(state_at(2, size)))  # nearer ones are good
    state = state_at(0, size)
    with run.opened("elsewhere") as ckpt:
        assert ckpt.restore(state) == 1
        assert ckpt.last_restore is not None
        assert [step for step, _ in ckpt.last_restore.fell_back_from] == [2]
    assert values_of(state) == values_of(state_at(1, size))


def test_no_secret_is_told(
    run: StoredRun, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = run.store.keys
    broken = (
        run.proxy.doing(faults.internal_error(), PART, times=3),
        run.proxy.doing(faults.refused(403, "AccessDenied"), MANIFEST),
        run.proxy.doing(faults.lost_answer(), COMPLETE),
    )
    with broken[0], broken[1], broken[2]:
        run.save(1)
    listed = run_program("ls", run.url)
    assert listed.returncode == 0, listed.stderr
    # A process looks for its keys once: the wrong ones are for another.
    wrong = keys.secret[::-1]
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", wrong)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "planted-token")
    refused = run_program("ls", run.url)
    assert refused.returncode != 0
    assert run.url in refused.stderr
    told = [*capfd.readouterr(), listed.stdout, listed.stderr, refused.stdout, refused.stderr]
    assert "AccessDenied" in told[1]  # the log
    told += [repr(df.tier(run.url)), repr(run.proxy.seen)]
    for place in (run.files(), run.objects()):
        told += [name + body.decode("latin-1") for name, body in place.items()]
    for secret in (keys.secret, keys.access, wrong, "planted-token"):
        assert [text[:200] for text in told if secret in text] == []
