"""Sources for the tests of `deepfreeze import`, good and hostile, and calls of it."""

import json
import os
import pickle
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp

import deepfreeze as df
from deepfreeze.__main__ import main
from tests.support import warm_python

# The dtypes that torch has; safetensors' other dtypes are written by hand.
DTYPES = (
    torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32,
    torch.uint64, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu,
)  # fmt: skip


def random_tensor(dtype: torch.dtype, *shape: int, seed: int = 7) -> torch.Tensor:
    """Any bits at all, NaNs among them; booleans are 0 or 1."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(2, shape, generator=generator).to(torch.bool)
    raw = torch.randint(256, (*shape, dtype.itemsize), dtype=torch.uint8, generator=generator)
    return raw.view(dtype).reshape(shape)


def write_dcp(folder: Path, state: dict[str, Any], **options: Any) -> Path:
    """A directory of torch.distributed.checkpoint, by this process alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that no process group is there
        dcp.save(state, checkpoint_id=folder, no_dist=True, **options)
    return folder


def import_it(source: Path, run: Path, *more: str) -> int:
    """The exit code of the verb, in this process."""
    return main(["import", str(source), str(run), *more])


def imported(source: Path, run: Path, *more: str) -> Any:
    """The values that load() gives for the imported step."""
    assert import_it(source, run, *more) == 0
    with df.Checkpointer(run) as ckpt:
        assert ckpt.verify() == []
        return ckpt.load()


def refusal(
    source: Path, run: Path, capsys: pytest.CaptureFixture[str], *more: str
) -> tuple[str, str]:
    """Code and message of an import that must fail, and make no checkpoint."""
    capsys.readouterr()
    assert import_it(source, run, *more, "--json") == 3
    said = capsys.readouterr()
    error = json.loads(said.out)["error"]
    assert said.err == f"deepfreeze import: {error['message']}\n"
    assert not list(run.glob("step-*/manifest.json"))
    return error["code"], error["message"]


class Runs:
    """Unpickled, it would make the file `mark`."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.system, (f"touch {self._mark}",)


def repack(path: Path, change: Callable[[str, bytes], bytes | None], **options: Any) -> None:
    """Writes a zip anew, each record as `change` gives it; None leaves it out."""
    with zipfile.ZipFile(path) as old:
        records = [(name, old.read(name)) for name in old.namelist()]
    with zipfile.ZipFile(path, "w", **options) as new:
        for name, data in records:
            changed = change(name.partition("/")[2], data)
            if changed is not None:
                new.writestr(name, changed)


def put_pickle(path: Path, value: bytes) -> None:
    """Has a file of torch.save hold a dict with the value of these operations under "x"."""
    torch.save({"x": torch.arange(8.0), "more": torch.arange(1000.0)}, path)
    data = b"\x80\x02}" + pickled(b"x") + value + b"s."
    repack(path, lambda name, old: data if name == "data.pkl" else old)


def pickled(value: bytes | int) -> bytes:
    """The operations that push a text or a small number."""
    if isinstance(value, int):
        return b"J" + value.to_bytes(4, "little", signed=True)
    return b"X" + len(value).to_bytes(4, "little") + value


def record_place(path: Path, name: str) -> int:
    """The offset of a record's data."""
    data = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        wanted = next(info for info in archive.infolist() if info.filename.endswith(name))
        start = wanted.header_offset
        names, extra = data[start + 26 : start + 28], data[start + 28 : start + 30]
        return start + 30 + int.from_bytes(names, "little") + int.from_bytes(extra, "little")


def safetensors_bytes(header: object, data: bytes = b"") -> bytes:
    """A file with any header at all."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def metadata_of(folder: Path) -> Any:
    """DCP's own reading of it: of files that a test has written."""
    return pickle.loads((folder / ".metadata").read_bytes())


def put_metadata(folder: Path, metadata: object) -> None:
    (folder / ".metadata").write_bytes(pickle.dumps(metadata, protocol=4))


def replace_item(
    folder: Path, name: str, value: object, change: Callable[[str, bytes], bytes] | None = None
) -> None:
    """Has DCP's item `name` be another value, in a file of its own; repacked with `change`."""
    metadata = metadata_of(folder)
    other = folder / "other.distcp"
    torch.save(value, other)
    if change is not None:
        repack(other, change)
    for index, info in metadata.storage_data.items():
        if index.fqn == name:
            info.relative_path, info.offset, info.length = other.name, 0, other.stat().st_size
    put_metadata(folder, metadata)


def in_two_processes(program: str, *arguments: object) -> None:
    """Runs a program as ranks 0 and 1."""
    ranks = [
        warm_python.start(
            [sys.executable, "-c", program, str(rank), *map(str, arguments)], warm_python.RANKS,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for rank in range(2)
    ]  # fmt: skip
    said = [rank.communicate(timeout=240)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
