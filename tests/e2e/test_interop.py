"""Every data file is a safetensors file: old and new readers give back the live tensors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

import deepfreeze as df

from .safetensors_reader import form
from .small_run import SmallRun
from .stored_file import read_stored_file

READER = Path(__file__).with_name("safetensors_reader.py")
OLDEST, NEWEST = "0.4.5", "0.8.0"

# Dtypes that the format's readers know; docs/format.md says how the others are stored.
PLAIN = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.float8_e4m3fn, torch.float8_e5m2),
)
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
COMPLEX = (torch.complex64, torch.complex128)


def folder_of(version: str) -> str:
    """The folder that comes first on the reader's path; `make setup` put the oldest there."""
    return str(Path(sys.prefix) / "interop") if version == OLDEST else ""


@pytest.fixture(scope="session", params=[OLDEST, NEWEST])
def reader(request: pytest.FixtureRequest) -> tuple[str, str]:
    return request.param, folder_of(request.param)


def read_all(reader: tuple[str, str], run: Path) -> dict[str, list[Any]]:
    """All tensors of the data files of a run with one checkpoint."""
    version, folder = reader
    found: dict[str, list[Any]] = {}
    for path in run.glob("step-*/*.safetensors"):
        done = subprocess.run(
            [sys.executable, str(READER), str(path)],
            env={**os.environ, "PYTHONPATH": folder},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        assert document["version"] == version
        found |= document["tensors"]
    assert found
    return found


def random_tensor(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Any bits at all, NaNs and denormals among them; booleans are 0 or 1."""
    generator = torch.Generator().manual_seed(5)
    if dtype == torch.bool:
        return torch.randint(2, shape, generator=generator).to(torch.bool)
    width = torch.empty(0, dtype=dtype).element_size()
    raw = torch.randint(256, (*shape, width), dtype=torch.uint8, generator=generator)
    return raw.view(dtype).reshape(shape)


def save(run: Path, state: dict[str, Any]) -> None:
    with df.Checkpointer(run) as ckpt:
        handle = ckpt.save(1, state)
        assert handle is not None
        handle.wait("durable")


def dtype_state() -> dict[str, torch.Tensor]:
    state = {str(dtype): random_tensor(dtype, 37, 5) for dtype in (*PLAIN, *UNSIGNED)}
    state["empty"] = torch.empty(0, 3)
    state["scalar"] = torch.tensor(2.5, dtype=torch.float64)
    state["transposed"] = random_tensor(torch.float32, 6, 9).t()
    state["strided"] = random_tensor(torch.int16, 40)[1::3]
    return state


def test_every_dtype_and_layout_equals_the_live_tensor(
    reader: tuple[str, str], tmp_path: Path
) -> None:
    live = {key.replace(".", "_"): tensor for key, tensor in dtype_state().items()}
    save(tmp_path / "run", {"t": live})
    found = read_all(reader, tmp_path / "run")
    assert found == {f"t.{key}": list(form(tensor)) for key, tensor in live.items()}


def test_views_of_one_storage_are_that_storage_once(
    reader: tuple[str, str], tmp_path: Path
) -> None:
    base = torch.arange(12.0)
    save(tmp_path / "run", {"front": base[:8], "back": base[4:], "wide": base[:1].expand(5)})
    found = read_all(reader, tmp_path / "run")
    assert list(found.values()) == [list(form(base))]


@pytest.mark.parametrize("dtype", COMPLEX)
def test_complex_numbers_read_as_pairs(
    reader: tuple[str, str], tmp_path: Path, dtype: torch.dtype
) -> None:
    live = random_tensor(dtype, 11, 3)
    save(tmp_path / "run", {"plain": live, "conjugate": live.conj()})
    found = read_all(reader, tmp_path / "run")
    assert found["plain"] == list(form(torch.view_as_real(live)))
    assert found["conjugate"] == list(form(torch.view_as_real(live.conj().resolve_conj())))


def test_a_training_state_equals_the_live_tensors(reader: tuple[str, str], tmp_path: Path) -> None:
    small = SmallRun("eager")
    for _, batch in zip(range(3), small.loader, strict=False):
        small.train_step(*batch)
    save(tmp_path / "run", small.whole)
    found = read_all(reader, tmp_path / "run")
    for name, tensor in small.model.state_dict().items():
        assert found[f"model.{name}"] == list(form(tensor)), name
    moments = [value for entry in small.optims[0].state.values() for value in entry.values()]
    stored = [json.dumps(value) for key, value in found.items() if key.startswith("optim0.")]
    assert len(moments) == 3 * len(list(small.model.parameters()))
    assert Counter(stored) == Counter(json.dumps(list(form(tensor))) for tensor in moments)


def test_data_starts_on_a_page_and_has_no_holes(tmp_path: Path) -> None:
    save(tmp_path / "run", {"t": dtype_state()})
    (path,) = (tmp_path / "run").glob("step-*/*.safetensors")
    stored = read_stored_file(path)
    assert stored.header_bytes % 4096 == 0
    place = 0
    for begin, end in sorted(stored.extents.values()):
        assert begin == place
        place = end
    assert place == stored.data_bytes
