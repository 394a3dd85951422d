"""The comparison of clients of object stores: all of it at a smoke size, and its counting."""

import json
from pathlib import Path
from typing import Any

import pytest

from lab.experiments.stores import __main__ as stores
from lab.experiments.stores import beside
from lab.experiments.stores.clients import OWN
from lab.experiments.stores.sink import without_frames
from lab.experiments.stores.table import markdown

FETCHED_MAX = 1.3  # over the bytes of a tensor


def test_a_checkpoint_goes_to_the_sink_and_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    assert stores.main(["--smoke", "--directory", str(tmp_path), "--json", str(path)]) == 0
    rows = {row["what"]: row for row in json.loads(path.read_text())["rows"]}
    assert set(rows) == {"upload", "download", "one"}
    assert all(rows[what]["seconds"] > 0 for what in stores.WAYS)
    assert 1 <= rows["one"]["fetched"] / rows["one"]["bytes"] <= FETCHED_MAX


def test_a_training_has_a_flush_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "beside.json"
    assert beside.main(["--smoke", "--directory", str(tmp_path), "--json", str(path)]) == 0
    (measured,) = json.loads(path.read_text())["measured"]
    alone, flushed = sorted(measured["segments"], key=lambda one: one["sent"])
    assert alone["sent"] == 0
    assert flushed["sent"] > 0
    assert alone["steps"] == flushed["steps"]


def row(client: str, number: int, seconds: float, cpu: float) -> dict[str, Any]:
    return {
        "server": "sink", "round": number, "client": client, "what": "upload", "bytes": 10**9,
        "seconds": seconds, "user_seconds": cpu / 2, "system_seconds": cpu / 2, "load": 0.5,
    }  # fmt: skip


def test_ratios_are_of_the_same_round() -> None:
    rows = [row(OWN, 0, 0.5, 0.2), row(OWN, 1, 1.0, 0.4), row("other", 0, 1.0, 0.8),
            row("other", 1, 4.0, 1.0)]  # fmt: skip
    failed = {"server": "sink", "round": 0, "client": "third", "what": "upload", "error": "why"}
    text = markdown({"command": "c", "machine": {"cores": 2}, "rows": [*rows, failed]})
    ours = "| DeepFreeze | 1.50 [1.00, 2.00] | 0.300 [0.200, 0.400] | 1 | 1 |"
    other = "| other | 0.62 [0.25, 1.00] | 0.900 [0.800, 1.000] |"
    assert ours in text
    assert f"{other} 0.38 [0.25, 0.50] | 3.25 [2.50, 4.00] |" in text
    assert "FAILED: third upload: why" in text


@pytest.mark.parametrize("sizes", [(), (5,), (70_000, 1)])
def test_frames_of_a_body_are_taken_off(sizes: tuple[int, ...]) -> None:
    parts = [bytes([65 + number]) * size for number, size in enumerate(sizes)]
    framed = b"".join(b"%x;chunk-signature=0\r\n%b\r\n" % (len(part), part) for part in parts)
    assert without_frames(framed + b"0\r\nx-amz-checksum-crc32:AAAA\r\n\r\n") == b"".join(parts)
