"""Importing files of numpy.savez, and importing by a map of names."""

from __future__ import annotations

import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from import_kit import import_it, imported, refusal

ARRAYS: dict[str, Any] = {
    "updater/model:main/l1/W": np.arange(12, dtype=np.float32).reshape(3, 4),
    "fortran": np.asfortranarray(np.arange(6, dtype=np.int64).reshape(2, 3)),
    "half": np.array([1.5, np.nan], np.float16),
    "empty": np.zeros((0, 3)),
    "scalar": np.int32(-7),
    "complex": np.array([1 + 2j]),
    "yes": np.array([True, False]),
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_every_array_comes_back(save: Any, tmp_path: Path, run: Path) -> None:
    save(tmp_path / "it.npz", **ARRAYS)
    found = imported(tmp_path / "it.npz", run)
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        got = np.asarray(found[name])
        assert (got.dtype, got.shape, got.tobytes()) == (
            np.asarray(array).dtype, array.shape, np.asarray(array).tobytes(),
        )  # fmt: skip


def test_what_compresses_well_is_imported(tmp_path: Path, run: Path) -> None:
    zeros = np.zeros(20 << 20)  # of a thousandth in the file, and more than is allowed to be shared
    np.savez_compressed(tmp_path / "it.npz", zeros=zeros)
    assert np.asarray(imported(tmp_path / "it.npz", run)["zeros"]).shape == zeros.shape


def record(array: Any, **header: Any) -> bytes:
    """An .npy, whose header may claim anything."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape, **header}
    )
    return file.getvalue() + array.tobytes()


def npz(path: Path, **records: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in records.items():
            archive.writestr(f"{name}.npy", data)
    return path


SOME = np.arange(8, dtype=np.float32)


@pytest.mark.parametrize(
    ("data", "code", "message"),
    [
        (record(SOME, shape=(1 << 40,)), "corrupt", "its size is not that of float32"),
        (record(SOME, shape=(7,)), "corrupt", "its size is not that of float32"),
        (record(SOME, shape=(-8,)), "corrupt", "its size is not that of float32"),
        (record(SOME, descr="|O"), "unsupported", "it holds Python objects"),
        (b"no numpy", "corrupt", "magic"),
        (b"", "corrupt", "magic|EOF"),
    ],
)
def test_claims_are_not_believed(
    data: bytes, code: str, message: str, tmp_path: Path, run: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    source = npz(tmp_path / "it.npz", x=data)
    found, said = refusal(source, run, capsys)
    assert found == code
    assert re.search(message, said), said


def test_each_damaged_byte_is_found_or_harmless(tmp_path: Path, run: Path) -> None:
    source = npz(tmp_path / "it.npz", x=record(SOME))
    good = source.read_bytes()
    for place in range(0, len(good), 7):
        source.write_bytes(good[:place] + bytes([good[place] ^ 16]) + good[place + 1 :])
        target = tmp_path / f"run-{place}"
        if import_it(source, target, "--from", "npz") == 0:
            values = imported(source, tmp_path / f"again-{place}", "--from", "npz").values()
            assert [np.asarray(each).tobytes() for each in values] == [SOME.tobytes()]


def test_two_of_one_name(tmp_path: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "it.npz"
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr("x.npy", record(SOME))
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("x.npy", record(SOME + 1))
    assert refusal(source, run, capsys) == ("corrupt", f"read {source} (x): it occurs twice")


# Maps


def mapped(tmp_path: Path, rules: Any) -> str:
    path = tmp_path / "map.json"
    path.write_text(rules if isinstance(rules, str) else json.dumps(rules))
    return str(path)


@pytest.mark.parametrize("kind", ["npz", "torch"])
def test_a_map_renames_and_turns(
    kind: str, tmp_path: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = np.arange(24, dtype=np.float32).reshape(2, 12)
    arrays = {"dense.kernel": kernel, "dense.bias": kernel[0].copy(), "step": np.int64([3])}
    source = tmp_path / f"it.{kind}"
    if kind == "npz":
        with source.open("wb") as file:
            np.savez(file, **arrays)
    else:
        torch.save({name: torch.from_numpy(each) for name, each in arrays.items()}, source)
    turned = [["reshape", 2, 3, 4], ["transpose", 2, 1, 0], ["reshape", 12, -1]]
    rules = {"fc.weight": {"from": "dense.kernel", "do": turned}, "fc.bias": "dense.bias"}
    found = imported(source, run, "--map", mapped(tmp_path, rules))
    assert found.keys() == rules.keys()
    wanted = kernel.reshape(2, 3, 4).transpose(2, 1, 0).reshape(12, 2)
    assert np.asarray(found["fc.weight"]).tolist() == wanted.tolist()
    assert np.asarray(found["fc.bias"]).tolist() == kernel[0].tolist()
    assert "the map leaves out step" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"w": "none"}, r"(w): the source has no array none"),
        ({"w": {"from": "x", "do": [["reshape", 3]]}}, r"(w): x, [8]: reshape [3]: "),
        ({"w": {"from": "x", "do": [["transpose", 1, 0]]}}, r"(w): x, [8]: transpose [1, 0]: "),
        ({"w": {"from": "x", "do": [["flip", 0]]}}, "it is not {NEW: OLD"),
        ({"w": {"from": "x", "and": 1}}, "it is not {NEW: OLD"),
        (["x"], "it is not {NEW: OLD"),
        ("{", "Expecting property name"),
    ],
)
def test_a_map_that_does_not_fit_is_an_error_of_usage(
    rules: Any, message: str, tmp_path: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = npz(tmp_path / "it.npz", x=record(SOME))
    assert import_it(source, run, "--map", mapped(tmp_path, rules)) == 2
    assert message in capsys.readouterr().err
    assert not run.exists() or not list(run.glob("step-*"))
