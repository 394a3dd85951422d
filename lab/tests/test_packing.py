"""Packed files on tiers, all of it at a smoke size; and the tables."""

import json
from pathlib import Path

from lab.experiments.packing import __main__ as packing
from lab.experiments.packing.table import markdown

LINK = 0.05


def test_a_tiny_state_is_packed_and_flushed(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    assert packing.main(["--smoke", "--directory", str(tmp_path), "--json", str(path)]) == 0
    (measured,) = json.loads(path.read_text())["measured"]
    assert 1.1 < measured["plain"] / measured["stored"] < 2
    assert measured["pack_seconds"] > 0 < measured["unpack_seconds"]
    flushes = {each["compress"]: each for each in measured["flushes"]}
    assert set(flushes) == {None, "auto"}
    assert flushes[None]["seconds"] > measured["plain"] / (LINK * 1e9)  # the link is that slow


def flush(number: int, compress: str | None, seconds: float) -> dict[str, object]:
    return {"link": 0.3, "round": number, "compress": compress, "seconds": seconds,
            "sent": 80 if compress else 100}  # fmt: skip


def test_ratios_are_of_the_same_round() -> None:
    flushes = [flush(0, None, 1.0), flush(0, "auto", 0.9), flush(1, None, 2.0),
               flush(1, "auto", 1.0)]  # fmt: skip
    one = {"network": "n", "title": "N", "load": 0.5, "plain": 4e9, "stored": 2e9,
           "pack_seconds": 4, "unpack_seconds": 2, "flushes": flushes}  # fmt: skip
    text = markdown({"command": "c", "machine": {"cores": 2}, "measured": [one]})
    assert "| N | 2000.0 | 2.00 | 1.00 | 2.00 |" in text
    spread = "1.50 [1.00, 2.00] | 0.95 [0.90, 1.00] | 0.70 [0.50, 0.90] | 0.80 [0.80, 0.80] |"
    assert f"| N | 0.3 | {spread}" in text
