"""Numbers of `deepfreeze explore` about tensors, against NumPy's on the whole arrays."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from explore_kit import answers, contents, numbers_of, save_all, weights
from testkit import attempt_of, data_file, data_start, flip

from deepfreeze.exploring import command, tensor_reading
from deepfreeze.exploring.answers import Answers
from deepfreeze.exploring.cache import Cache
from deepfreeze.exploring.discovering import runs_of
from deepfreeze.exploring.runs import read_runs
from deepfreeze.exploring.tensor_numbers import (
    BIN_FIRST,
    QUANTITIES,
    TensorNumbers,
)
from deepfreeze.exploring.tensor_reading import Form, pieces_of


def truth(now: Any, before: Any) -> dict[str, float]:
    """By NumPy, in doubles, of all elements at once."""
    bits = now.view(f"u{now.itemsize}") != before.view(f"u{now.itemsize}")
    now, before = now.astype("f8").ravel(), before.astype("f8").ravel()
    own = now[np.isfinite(now)]
    both = np.isfinite(now) & np.isfinite(before)
    delta = (now - before)[both]
    return {
        "min": own.min(), "max": own.max(), "mean": own.mean(), "deviation": own.std(),
        "norm": np.linalg.norm(own), "zeros": (own == 0).sum(),
        "non_finite": now.size - own.size, "delta": np.linalg.norm(delta),
        "cosine": now[both] @ before[both]
        / (np.linalg.norm(now[both]) * np.linalg.norm(before[both])),
        "changed": bits.sum(),
    }  # fmt: skip


def series_of(run: Path, cache: Path, key: str) -> dict[str, list[float]]:
    numbers = numbers_of(cache, run)
    keys = [form.key for form in numbers.tensors()[0]]
    found = numbers.exact_series(keys.index(key))
    return {name: list(row) for name, row in zip(QUANTITIES, found, strict=True)}


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i2", "u8", "i8"])
def test_numbers_are_those_of_numpy(tmp_path: Path, dtype: str) -> None:
    random = np.random.default_rng(7)
    pair = [(random.standard_normal((9, 11)) * 50).astype(dtype) for _ in range(2)]
    pair[1][0] = pair[0][0]
    pair[1][3, 2] = 0
    if dtype.startswith("f"):
        pair[1][4, :3] = np.nan, np.inf, -np.inf
        pair[0][5, 5] = np.nan
    save_all(tmp_path / "run", {1: {"w": pair[0]}, 2: {"w": pair[1]}})
    found = series_of(tmp_path / "run", tmp_path / "cache", "w")
    for name, value in truth(pair[1], pair[0]).items():
        assert found[name][1] == pytest.approx(value, rel=1e-12), name
    assert np.isnan(found["delta"][0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2])
def test_short_types_are_decoded_as_torch_does(dtype: torch.dtype) -> None:
    names = {torch.bfloat16: "BF16", torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2"}
    count = 1 << (16 if dtype == torch.bfloat16 else 8)
    bits = np.arange(count, dtype="u2" if count > 256 else "u1")
    values = torch.from_numpy(bits.copy()).view(dtype).double().numpy()
    values = np.where(np.abs(values) < 1e30, values, np.nan)  # sums beyond have no use
    bits = bits[np.isfinite(values)]
    sums = TensorNumbers(names[dtype], count)
    sums.add(bits.view("u1"), bits[::-1].copy().view("u1"))
    values = values[np.isfinite(values)]
    found = dict(zip(QUANTITIES, sums.result(), strict=True))
    assert (found["min"], found["max"]) == (values.min(), values.max())
    assert found["norm"] == pytest.approx(np.linalg.norm(values), rel=1e-12)
    assert found["delta"] == pytest.approx(np.linalg.norm(values - values[::-1]), rel=1e-12)


def test_pieces_make_the_whole_and_give_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(11)
    states = {step: {"w": random.standard_normal((3, 5, 7, 2))} for step in (1, 2)}
    save_all(tmp_path / "run", states)
    whole = series_of(tmp_path / "run", tmp_path / "one", "w")
    for size in (8, 64, 120, 700):
        monkeypatch.setattr(tensor_reading, "PIECE_BYTES", size)
        found = series_of(tmp_path / "run", tmp_path / str(size), "w")
        for name in QUANTITIES:
            assert found[name] == pytest.approx(whole[name], rel=1e-12, nan_ok=True), (size, name)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 0, 2), (5, 4, 3), (1, 100)])
def test_pieces_cover_each_element_once(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor_reading, "PIECE_BYTES", 40)
    seen = np.zeros(shape, int)
    for piece in pieces_of(Form("w", "F32", shape)):
        assert piece.bytes <= 40
        place = zip(piece.offset, piece.extent, strict=True)
        seen[tuple(slice(begin, begin + count) for begin, count in place)] += 1
    assert (seen == 1).all()


def test_the_histogram_counts_by_power_of_two() -> None:
    sums = TensorNumbers("F32", 8)
    sums.add(np.array([0, 1, 1.5, 2, -4, 2e-38, 1e30, np.nan], "<f4").view("u1"))
    bins = (sums.histogram() / 255.0) ** 2
    expected = {0: 2 / 6, 1: 1 / 6, 2: 1 / 6, BIN_FIRST: 1 / 6, BIN_FIRST + 63: 1 / 6}
    for exponent, share in expected.items():
        assert bins[exponent - BIN_FIRST] == pytest.approx(share, abs=0.01), exponent
    assert bins.sum() == pytest.approx(1, abs=0.02)


def test_numbers_beyond_a_double_are_not_known_and_tiny_ones_are() -> None:
    def found(*values: float) -> dict[str, float]:
        sums = TensorNumbers("F64", len(values))
        data = np.array(values)
        sums.add(data.view("u1"), (-data).view("u1"))
        return dict(zip(QUANTITIES, sums.result(), strict=True))

    large = found(1e200, -1e200, 1e200)
    unknown = [name for name, value in large.items() if np.isnan(value)]
    assert unknown == ["deviation", "norm", "delta", "cosine"]
    assert (large["max"], large["changed"]) == (1e200, 3)
    assert np.isnan(found(1.7e308, 1.7e308)["mean"])
    tiny = found(1e-30, -1e-30)
    assert np.float32(tiny["deviation"]) == np.float32(1e-30)


def test_flags_and_json_have_counts_to_the_last_digit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    count = (1 << 24) + 1  # no float32
    save_all(tmp_path / "run", {1: {"w": np.ones(3, "f4")}})
    real = TensorNumbers.result

    def counting(self: TensorNumbers) -> tuple[float, ...]:
        found = dict(zip(QUANTITIES, real(self), strict=True))
        return tuple((found | {"non_finite": float(count)}).values())

    monkeypatch.setattr(TensorNumbers, "result", counting)
    made = answers(tmp_path / "cache", tmp_path / "run")
    (flag,) = made.flags(made.runs[0].id)["flags"]
    assert f"{count:,} of 3 elements" in flag["text"]
    command._print_all(made)
    (run,) = json.loads(capsysbinary.readouterr().out)["runs"]
    assert run["numbers"]["non_finite"] == [[count]]


def test_a_cosine_is_never_beyond_its_ends() -> None:
    random = np.random.default_rng(5)
    found = []
    for count in range(2, 60):
        data = random.standard_normal(count)
        sums = TensorNumbers("F64", count)
        sums.add(data.view("u1"), (data * 3).view("u1"))
        found.append(sums.result()[QUANTITIES.index("cosine")])
    assert max(found) == 1.0, "rounding goes either way"
    assert min(found) == pytest.approx(1.0)


def test_a_tensor_of_another_shape_is_not_compared(tmp_path: Path) -> None:
    states = {
        1: {"w": np.ones(3, "f4"), "gone": np.ones(2), "kept": np.ones(2)},
        2: {"w": np.ones(4, "f4"), "new": np.ones(2), "kept": np.full(2, 4.0)},
        3: {"w": np.ones(4, "f4"), "new": np.ones(2)},
    }
    save_all(tmp_path / "run", states)
    found = series_of(tmp_path / "run", tmp_path / "cache", "w")
    np.testing.assert_array_equal(found["delta"], [np.nan, np.nan, 0])
    np.testing.assert_array_equal(found["norm"], [np.sqrt(3), 2, 2])
    kept = series_of(tmp_path / "run", tmp_path / "cache", "kept")
    assert kept["delta"][1] == np.sqrt(18), "it is compared all the same"
    gone = series_of(tmp_path / "run", tmp_path / "cache", "gone")
    np.testing.assert_array_equal(gone["max"], [1, np.nan, np.nan])


def test_numbers_are_kept_and_a_flipped_bit_in_the_cache_is_never_shown(tmp_path: Path) -> None:
    run, cache = tmp_path / "run", tmp_path / "cache"
    save_all(run, {step: weights(step) for step in (1, 2)})
    before = contents(run)
    first = numbers_of(cache, run)
    (kept,) = cache.glob("*/*-none.numbers")
    assert kept.stat().st_size == 512 + 3 * 144, "as docs/explore.md has it"
    again = numbers_of(cache, run)
    np.testing.assert_array_equal(first.matrix("norm"), again.matrix("norm"))
    data = bytearray(kept.read_bytes())
    data[512 + 4 * 8 * 3 + 5] ^= 1  # in the row of the norms
    kept.write_bytes(data)
    damaged = numbers_of(cache, run).matrix("norm")
    assert np.isnan(damaged[:, 0]).all()
    assert (damaged[:, 1] == first.matrix("norm")[:, 1]).all()
    np.testing.assert_array_equal(numbers_of(cache, run).matrix("norm"), first.matrix("norm"))
    kept.write_bytes(data[:900])  # cut
    np.testing.assert_array_equal(numbers_of(cache, run).matrix("norm"), first.matrix("norm"))
    assert before == contents(run)


def test_an_earlier_step_that_was_deleted_meanwhile_is_not_kept_as_compared(
    tmp_path: Path,
) -> None:
    run, cache = tmp_path / "run", tmp_path / "cache"
    save_all(run, {step: weights(step) for step in (1, 2)})
    made = Answers(read_runs(runs_of([str(run)])), Cache(cache))
    numbers = made.numbers(made.runs[0].id)
    shutil.rmtree(attempt_of(run, 1))
    numbers.compute(1, lambda _: None)
    assert np.isnan(numbers.matrix("delta")[:, 1]).all()
    assert np.isfinite(numbers.matrix("norm")[:, 1]).all()
    assert not list(cache.glob("*/*.numbers"))
    assert np.isfinite(numbers_of(cache, run).matrix("norm")).all()
    assert len(list(cache.glob("*/*-none.numbers"))) == 1


def test_ranges_of_the_header_are_there_before_the_data_is_read(tmp_path: Path) -> None:
    run = tmp_path / "run"
    state = {"w": np.array([3, -2, np.nan], "f4"), "n": np.arange(3), "nan": np.array([np.inf])}
    save_all(run, {1: state}, statistics=True)
    save_all(run, {2: {"w": np.ones(3, "f4")}})
    made = Answers(read_runs(runs_of([str(run)])), Cache(tmp_path / "cache"))
    numbers = made.numbers(made.runs[0].id)
    numbers.read_ranges()
    keys = [form.key for form in numbers.tensors()[0]]
    found = {name: numbers.matrix(name)[:, 0] for name in ("min", "max", "non_finite", "norm")}
    assert [found[name][keys.index("w")] for name in ("min", "max", "non_finite")] == [-2, 3, 1]
    assert np.isnan(found["norm"]).all()
    assert np.isnan(found["min"][keys.index("n")])
    assert np.isnan(found["max"][keys.index("nan")])
    assert len(numbers.missing) == 2, "the data is still to be read"
    made.compute_all(lambda _: None)
    assert numbers.matrix("norm")[keys.index("w"), 0] == pytest.approx(np.sqrt(13))
    assert numbers.missing == []


def test_stopping_does_not_wait_for_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    save_all(run, {1: {"w": np.ones(65536, "f4")}, 2: weights(2)})
    monkeypatch.setattr(tensor_reading, "PIECE_BYTES", 1 << 16)
    monkeypatch.setattr(tensor_reading, "_BATCH_BYTES", 1 << 16)
    made = Answers(read_runs(runs_of([str(run)])), Cache(tmp_path / "cache"))
    reads = []
    real = tensor_reading.Buffer.read

    def stopping(*arguments: Any) -> Any:
        reads.append(1)
        made._stop.set()
        return real(*arguments)

    monkeypatch.setattr(tensor_reading.Buffer, "read", stopping)
    made.begin()
    made.stop()
    assert len(reads) == 1, "of four"
    assert made.numbers(made.runs[0].id).missing == [0, 1]
    assert not (tmp_path / "cache").exists()


def test_a_cache_that_cannot_be_written_only_forgets(tmp_path: Path) -> None:
    save_all(tmp_path / "run", {1: weights(1)})
    place = tmp_path / "file"
    place.write_text("no directory")
    assert np.isfinite(numbers_of(place, tmp_path / "run").matrix("norm")).all()


def test_an_earlier_step_that_fails_within_a_tensor_gives_no_change_and_none_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, cache = tmp_path / "run", tmp_path / "cache"
    large = np.arange(65536, dtype="f4")  # four blocks of checksums
    states = [{"a": np.full(9, step), "w": large + step, "z": np.full(9, step)} for step in (1, 2)]
    save_all(run, {1: states[0], 2: states[1]})
    monkeypatch.setattr(tensor_reading, "PIECE_BYTES", 1 << 16)
    monkeypatch.setattr(tensor_reading, "_BATCH_BYTES", 1 << 16)
    first = data_file(run, 1)
    good = first.read_bytes()
    flip(first, data_start(first) + 3 * large.nbytes // 4)
    made = answers(cache, run)
    (found,) = made.runs
    numbers = made.numbers(found.id)
    place = [form.key for form in numbers.tensors()[0]].index("w")
    shown = dict(zip(QUANTITIES, numbers.exact_series(place)[:, 1], strict=True))
    assert shown["norm"] == pytest.approx(np.linalg.norm(states[1]["w"].astype("f8")))
    assert np.isnan([shown[name] for name in ("delta", "cosine", "changed")]).all()
    pair = (found.id, found.steps[0].attempt, found.id, found.steps[1].attempt)
    rows = {row["key"]: row["change"] for row in made.compare(*pair)["tensors"]}
    assert rows["w"] == "damaged"
    assert not list(cache.glob("*/*.numbers")), "neither step was read as a whole"
    first.write_bytes(good)
    again = series_of(run, cache, "w")
    assert again["delta"][1] == pytest.approx(256)
    assert again["changed"][1] == large.size
