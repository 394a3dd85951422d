"""`deepfreeze verify --fast` on a real store: it reads no data, and finds changes by others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from examples.demo.program import run_program

from .stored_run import LARGE, StoredRun

SMALL = 1 << 16  # bytes: one PUT; LARGE: an upload in parts


def verify(run: StoredRun, *words: str) -> tuple[int, dict[str, Any]]:
    ended = run_program("verify", "--fast", "--json", *(words or [run.url]))
    assert ended.returncode in (0, 1), ended.stderr
    return ended.returncode, json.loads(ended.stdout)


def data_of(run: StoredRun, step: int) -> tuple[str, bytes]:
    (key,) = [
        name
        for name in run.client.names(f"{run.prefix}/step-{step:012d}-")
        if name.endswith(".safetensors")
    ]
    return key, run.client.send("GET", key).body


def faults(found: dict[str, Any]) -> list[tuple[int, str]]:
    """Step and cause of each."""
    attempts = found["attempts"]
    return [(one["step"], fault["cause"]) for one in attempts for fault in one["faults"]]


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_a_whole_run_is_good_and_its_data_is_not_read(run: StoredRun, size: int) -> None:
    run.save(1, 2, size=size)
    before = len(run.proxy.seen)
    code, found = verify(run)
    assert (code, found["good"], faults(found)) == (0, True, [])
    assert [one["without_checksum"] for one in found["attempts"]] == [[], []]
    (note,) = found["notes"]
    assert "the data of 2 of 2 files was not read: the store's word was taken" in note
    asked = [seen.method for seen in run.proxy.seen[before:] if seen.path.endswith(".safetensors")]
    # Of each file: size and checksum, the size of its header, the header.
    assert sorted(asked) == ["GET"] * 4 + ["HEAD"] * 2


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_objects_that_were_replaced_cut_off_or_deleted_are_faults(
    run: StoredRun, size: int
) -> None:
    run.save(1, 2, 3, size=size)
    key, whole = data_of(run, 1)
    other = whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:]
    sums = {"x-amz-checksum-algorithm": "CRC32C"}  # the store calculates it itself
    assert run.client.send("PUT", key, body=other, fields=sums).status == 200
    key, whole = data_of(run, 2)
    cut = whole[: -(1 << 12)]
    assert run.client.send("PUT", key, body=cut).status == 200
    key, _ = data_of(run, 3)
    assert run.client.send("DELETE", key).status == 204
    code, found = verify(run)
    assert code == 1
    told = ["its checksum, as the store keeps it", "the manifest says", "missing"]
    for step, ((place, cause), part) in enumerate(zip(faults(found), told, strict=True), 1):
        assert place == step
        assert part in cause
    assert verify(run, f"{run.url}@2")[0] == 1


def test_an_object_without_a_checksum_is_told(run: StoredRun) -> None:
    """Another program has copied it there."""
    run.save(1, 2, size=SMALL)
    key, whole = data_of(run, 1)
    assert run.client.send("PUT", key, body=whole).status == 200
    code, found = verify(run)
    assert (code, faults(found)) == (0, [])
    assert [len(one["without_checksum"]) for one in found["attempts"]] == [1, 0]
    assert any(
        "the data of 1 of 2 files was not read: no checksum is kept there, size only" in note
        for note in found["notes"]
    )
    text = run_program("verify", "--fast", run.url)
    assert text.stdout.endswith("2 checkpoints looked at, 0 with a fault\n")


def test_a_directory_keeps_no_checksums(run: StoredRun) -> None:
    run.save(1, 2, size=SMALL)
    code, found = verify(run, str(run.near))
    assert code == 0
    assert [len(one["without_checksum"]) for one in found["attempts"]] == [1, 1]
    (newest,) = Path(run.near).glob("step-000000000002-*/*.safetensors")
    newest.unlink()
    code, found = verify(run, str(run.near))
    assert (code, [step for step, _ in faults(found)]) == (1, [2])
