"""Tiers whose files are packed on their way, from Python and from the shell."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import deepfreeze as df

SECONDS = 60.0  # for waits that must not hang
NUMBERS = 1_300_000
RATE = "5MB/s"  # so slow that packing pays on any machine


def state_of(step: int) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(step)
    return {"weights": 0.02 * torch.randn(NUMBERS, generator=draw), "step": torch.tensor(step)}


def data_file(run: Path, step: int) -> Path:
    (found,) = run.glob(f"step-*{step:04}-*/*.safetensors")
    return found


def deepfreeze(*arguments: object) -> dict[str, Any]:
    words = [sys.executable, "-m", "deepfreeze", *map(str, arguments), "--json"]
    told = subprocess.run(words, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    document = json.loads(told.stdout)
    assert isinstance(document, dict)
    return document


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Steps 1 to 3 in near/, and in far/, which learns in step 1 how slow its link is."""
    place = tmp_path_factory.mktemp("packed")
    far = df.tier(place / "far", compress="auto", rate=RATE)
    with df.Checkpointer(place / "near", tiers=[far]) as ckpt:
        for step in (1, 2, 3):
            handle = ckpt.save(step, state_of(step))
            assert handle is not None
            handle.wait("durable", SECONDS)
        (status,) = ckpt.tier_status()
        assert 0 < status.stored_total < status.bytes_total
    return place


def test_files_on_the_tier_are_smaller(run: Path) -> None:
    near, far = (data_file(run / name, 3) for name in ("near", "far"))
    assert far.read_bytes()[:8] == b"DFpacked"
    assert 1.15 * far.stat().st_size < near.stat().st_size


def test_other_programs_refuse_a_packed_file(run: Path) -> None:
    with pytest.raises(Exception, match=r"(?i)header"):
        load_file(data_file(run / "far", 3))


def test_a_restore_needs_the_tier_alone(run: Path) -> None:
    state = state_of(0)
    with df.Checkpointer(run / "far", read_only=True) as ckpt:
        assert ckpt.restore(state) == 3
    assert torch.equal(state["weights"], state_of(3)["weights"])


def test_verbs_read_a_tier_with_packed_files(run: Path, tmp_path: Path) -> None:
    far = run / "far"
    assert len(deepfreeze("ls", far)["checkpoints"]) == 3
    assert deepfreeze("show", f"{far}@3")
    assert deepfreeze("verify", far, "--deep")
    assert deepfreeze("diff", f"{far}@3", f"{run / 'near'}@3")
    assert deepfreeze("scrub", far)
    deepfreeze("fetch", f"{far}@3", tmp_path / "fetched")
    fetched = data_file(tmp_path / "fetched", 3)
    assert fetched.read_bytes() == data_file(run / "near", 3).read_bytes()
    deepfreeze("export", f"{far}@3", tmp_path / "plain.safetensors")
    plain = load_file(tmp_path / "plain.safetensors")
    assert torch.equal(plain["weights"], state_of(3)["weights"])


def test_a_flipped_bit_is_found_and_mended(run: Path) -> None:
    packed = data_file(run / "far", 3)
    good = packed.read_bytes()
    damaged = bytearray(good)
    damaged[len(damaged) // 2] ^= 1
    packed.write_bytes(damaged)
    try:
        told = subprocess.run(
            [sys.executable, "-m", "deepfreeze", "verify", f"{run / 'far'}@3", "--deep"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert told.returncode == 1
        assert "packed block" in told.stdout + told.stderr
        state = state_of(0)
        with df.Checkpointer(run / "far", read_only=True) as ckpt:
            assert ckpt.restore(state) == 2
        assert torch.equal(state["weights"], state_of(2)["weights"])
    finally:
        packed.write_bytes(good)


def test_flush_packs_if_it_is_told_to(run: Path, tmp_path: Path) -> None:
    told = deepfreeze("flush", run / "near", tmp_path / "far", "--compress", "--rate", 5)
    assert told["sent"] < told["bytes"]
    plain = deepfreeze("flush", run / "near", tmp_path / "plain")
    assert plain["sent"] == plain["bytes"]
    sizes = deepfreeze("tiers", run / "near", tmp_path / "far", tmp_path / "plain", "--sizes")
    near, far, other = (sum(one["bytes"][i] for one in sizes["checkpoints"]) for i in range(3))
    assert near == other == told["bytes"]
    assert far < near


def test_a_value_that_is_not_understood(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="compress='zip'"):
        df.tier(tmp_path, compress="zip")  # type: ignore[arg-type]


def test_a_bad_near_copy_is_healed_by_a_packed_one(run: Path, tmp_path: Path) -> None:
    near, far = (Path(shutil.copytree(run / name, tmp_path / name)) for name in ("near", "far"))
    good = data_file(near, 3).read_bytes()
    data_file(near, 3).write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    state = state_of(0)
    with df.Checkpointer(near, tiers=[df.tier(far, compress="auto")]) as ckpt:
        assert ckpt.restore(state) == 3
        assert torch.equal(state["weights"], state_of(3)["weights"])
        assert ckpt.last_restore is not None
        assert len(ckpt.last_restore.mended) == 1
        ckpt.drain(SECONDS)
    assert data_file(near, 3).read_bytes() == good
