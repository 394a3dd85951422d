"""Directories of torch.distributed.checkpoint that are broken, or made to do harm."""

import io
import random
import tracemalloc
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from import_kit import (
    Runs,
    import_it,
    imported,
    metadata_of,
    put_metadata,
    refusal,
    replace_item,
    write_dcp,
)
from testkit import assert_same, flip
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorStorageMetadata,
)

import deepfreeze as df


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A tensor and an object."""
    return write_dcp(tmp_path / "dcp", {"model": {"w": torch.arange(6.0).view(2, 3)}, "epoch": 3})


def change(folder: Path, edit: Callable[[Any], object]) -> None:
    metadata = metadata_of(folder)
    edit(metadata)
    put_metadata(folder, metadata)


def test_code_in_the_metadata_is_named_and_not_run(
    small: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mark = tmp_path / "mark"
    change(small, lambda m: setattr(m, "planner_data", Runs(mark)))
    code, message = refusal(small, run, capsys)
    assert code == "unsupported"
    assert message.startswith(f"read {small / '.metadata'}: it names posix.system, ")
    assert not mark.exists()
    assert not run.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"cos\nsystem\n.",
        b"cbuiltins\ngetattr\n.",
        b"ctorch.distributed.checkpoint.metadata\nos.system\n.",
        b"ctorch\nload\n.",
        b"cpathlib\nos.system\n.",
        b"\x80\x04\x8c\x05posix\x8c\x06system\x93.",
        b"(ios\nsystem\n.",
    ],
)
def test_no_other_name_is_looked_up(
    small: Path, run: Path, data: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    (small / ".metadata").write_bytes(data)
    code, message = refusal(small, run, capsys)
    assert code == "unsupported"
    assert "which is no part of DCP's metadata; nothing of it was run" in message


@pytest.mark.parametrize("name", ["epoch", "model.w"])
def test_code_in_an_item_is_named_and_not_run(
    small: Path, run: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    mark = tmp_path / "mark"
    replace_item(small, name, {"evil": Runs(mark)})
    code, message = refusal(small, run, capsys)
    assert code == "unsupported"
    assert message.startswith(f"read {small / 'other.distcp'} at 0 ({name}): to load it")
    assert "posix.system" in message
    assert not mark.exists()


def test_an_object_that_claims_more_than_its_record_is_refused(
    small: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def claim(name: str, data: bytes) -> bytes:
        return data.replace(b"K\x08", b"M\x00\x40") if name == "data.pkl" else data

    replace_item(small, "epoch", {"t": torch.arange(8.0)}, claim)
    code, message = refusal(small, run, capsys)
    assert code == "corrupt"
    assert "at 0 (epoch): record data/0 does not have its 16384 elements" in message


def test_an_item_that_is_another_than_the_metadata_says_is_refused(
    small: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in (torch.ones(3, 2), torch.ones(2, 3).double(), [torch.ones(2, 3)], "text",
                  torch.ones(2, 3).to_sparse()):  # fmt: skip
        replace_item(small, "model.w", value)
        assert "(model.w): " in refusal(small, run, capsys)[1]


def test_an_item_whose_tensor_is_not_what_its_record_holds_is_refused(
    small: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value = torch.ones(2, 3)

    def wide(name: str, data: bytes) -> bytes:
        return data.replace(b"K\x03K\x01\x86", b"K\x30K\x01\x86") if name == "data.pkl" else data

    replace_item(small, "model.w", value, wide)
    assert "lacks its one record of 204 bytes" in refusal(small, run, capsys)[1]
    replace_item(small, "model.w", value, lambda name, d: d[:8] if name == "data/0" else d)
    assert "lacks its one record of 24 bytes" in refusal(small, run, capsys)[1]
    replace_item(small, "model.w", value, lambda name, d: b"big" if name == "byteorder" else d)
    assert "big-endian" in refusal(small, run, capsys)[1]
    replace_item(small, "model.w", torch.arange(9.0)[3:].view(2, 3))
    assert_same(imported(small, run)["model"]["w"], torch.arange(9.0)[3:].view(2, 3))


def test_metadata_of_other_shapes_that_say_the_same(small: Path, run: Path) -> None:
    def edit(metadata: Any) -> None:
        metadata.planner_data = OrderedDict(metadata.planner_data)
        entry = metadata.state_dict_metadata["model.w"]
        empty = TensorStorageMetadata(entry.properties, size(0, 3), [])
        metadata.state_dict_metadata["empty"] = empty

    change(small, edit)
    found = imported(small, run)
    assert found["model"]["w"].shape == (2, 3)
    assert (found["empty"].dtype, found["empty"].shape) == (torch.float32, (0, 3))


def test_what_only_some_tables_have_is_told(
    small: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def edit(metadata: Any) -> None:
        del metadata.state_dict_metadata["epoch"]
        metadata.planner_data["rank 1's"] = ("rank 1's",)

    change(small, edit)
    assert list(imported(small, run)) == ["model"]
    said = capsys.readouterr().err
    assert f"{small / '.metadata'}: nothing was stored for 2 (epoch, rank 1's)" in said
    assert f"{small / '.metadata'} does not describe 1 (epoch): left out" in said


def test_a_place_that_stands_twice_is_refused(
    small: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def edit(metadata: Any) -> None:
        (info,) = (info for index, info in metadata.storage_data.items() if index.offset)
        twin = MetadataIndex("model.w", size(1, 1))
        metadata.storage_data[twin] = info
        object.__setattr__(twin, "offset", size(0, 0))

    change(small, edit)
    assert "(model.w): the box at [0, 0] stands twice" in refusal(small, run, capsys)[1]


def test_a_flipped_bit_in_a_tensor_is_found(
    tmp_path: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tensor = torch.arange(1000)
    folder = write_dcp(tmp_path / "dcp", {"w": tensor})
    (path,) = folder.glob("*.distcp")
    flip(path, path.read_bytes().index(tensor.numpy().tobytes()) + 4321)
    code, message = refusal(folder, run, capsys)
    assert (code, message) == (
        "corrupt", f"read {path} at 0 (w): record data/0: its CRC-32 does not match",
    )  # fmt: skip


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02]r" + (20_000_000).to_bytes(4, "little") + b".",  # a memo of 320 MB
        b"\x80\x05\x96" + (200_000_000).to_bytes(8, "little") + b".",
    ],
)
def test_no_memory_is_taken_for_what_the_metadata_only_says(
    small: Path, run: Path, data: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    (small / ".metadata").write_bytes(data)
    tracemalloc.start()
    assert refusal(small, run, capsys)[0] == "corrupt"
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50_000_000


def test_files_that_are_cut_or_missing_are_refused(
    small: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path,) = small.glob("*.distcp")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    code, message = refusal(small, run, capsys)
    assert code == "corrupt"
    assert f"the file ends at {len(whole) - 1}: it is cut" in message
    path.unlink()
    assert refusal(small, run, capsys)[0] == "not_found"
    metadata = (small / ".metadata").read_bytes()
    path.write_bytes(whole)
    for size in range(0, len(metadata), 31):
        (small / ".metadata").write_bytes(metadata[:size])
        assert refusal(small, run, capsys)[0] == "corrupt"


def laughs() -> list[Any]:
    """A list whose message would have a gigabyte."""
    nested: list[Any] = ["lol"]
    for _ in range(28):
        nested = [nested, nested]
    return nested


def move(metadata: Any, **where: Any) -> None:
    for info in metadata.storage_data.values():
        for name, value in where.items():
            setattr(info, name, value)


def size(*numbers: int) -> torch.Size:
    return torch.Size(numbers)


def rechunk(metadata: Any, *boxes: tuple[torch.Size, torch.Size]) -> None:
    """Gives the tensor other chunks, all at the same place."""
    entry = metadata.state_dict_metadata["model.w"]
    entry.chunks = [ChunkStorageMetadata(offset, shape) for offset, shape in boxes]
    (place,) = (info for index, info in metadata.storage_data.items() if index.offset is not None)
    for offset, _ in boxes:
        metadata.storage_data[MetadataIndex("model.w", offset)] = place


@pytest.mark.parametrize(
    ("edit", "code", "cause"),
    [
        (lambda m: move(m, relative_path="../x.distcp"), "corrupt", "no file of that directory"),
        (lambda m: move(m, relative_path="/etc/passwd"), "corrupt", "no file of that directory"),
        (lambda m: move(m, relative_path=".."), "corrupt", "no file of that directory"),
        (lambda m: move(m, relative_path=""), "corrupt", "no file of that directory"),
        (lambda m: move(m, relative_path="a\0b"), "corrupt", "no file of that directory"),
        (lambda m: move(m, relative_path=5), "corrupt", "file, offset or length is missing"),
        (lambda m: move(m, offset=-1), "corrupt", "negative"),
        (lambda m: move(m, length=1 << 60), "corrupt", "it is cut"),
        (lambda m: move(m, length=10), "corrupt", "no whole zip archive"),
        (lambda m: move(m, transform_descriptors=["stream.zstd/1"]), "unsupported", "zstd"),
        (lambda m: m.storage_data.clear(), "incomplete", "has no place in storage_data"),
        (lambda m: m.storage_data.update({"x": 1}), "corrupt", "no MetadataIndex"),
        (
            lambda m: m.storage_data.update({MetadataIndex("x", size(1)): 1}),
            "corrupt", "no _StorageInfo",
        ),
        (
            lambda m: next(iter(m.storage_data)).__dict__.update(offset="y"),
            "corrupt", "no list of numbers",
        ),
        (lambda m: setattr(m, "storage_data", None), "corrupt", "lacks"),
        (lambda m: setattr(m, "state_dict_metadata", [1]), "corrupt", "lacks"),
        (lambda m: m.state_dict_metadata.update({3: None}), "corrupt", "a name is a int"),
        (lambda m: m.state_dict_metadata.update(x=None), "corrupt", "neither a tensor nor"),
        (lambda m: m.planner_data.update({5: ("x",)}), "corrupt", "a name is a int"),
        (lambda m: move(m, transform_descriptors=laughs()), "unsupported", "through something"),
        (lambda m: m.planner_data.update(epoch="epoch"), "corrupt", "no tuple of keys"),
        (lambda m: m.planner_data.update(epoch=()), "corrupt", "no tuple of keys"),
        (lambda m: m.planner_data.update(epoch=(1.5,)), "corrupt", "no tuple of keys"),
        (lambda m: m.planner_data.update(epoch=("model", "w")), "corrupt", "occurs twice"),
        (lambda m: m.planner_data.update(epoch=("model", "w", "x")), "corrupt", "within a value"),
        (lambda m: m.planner_data.update(epoch=("model", 0)), "corrupt", "keys of a dict and of"),
        (lambda m: m.planner_data.update(epoch=("l", 1 << 40)), "corrupt", "with 1 items"),
        (lambda m: m.planner_data.update(epoch=("l", -1)), "corrupt", "keys of a dict and of"),
        (lambda m: m.planner_data.update(epoch=("a",) * 9999), "corrupt", "nested more than"),
        (
            lambda m: rechunk(m, (size(0, 0), size(1, 3)), (size(0, 0), size(1, 3))),
            "corrupt", "overlap",
        ),
        (lambda m: rechunk(m, (size(0, 0), size(1, 3))), "corrupt", "not as many elements"),
        (
            lambda m: rechunk(m, (size(0, 0), size(2, 2)), (size(0, 2), size(2, 2))),
            "corrupt", "beyond",
        ),
        (lambda m: rechunk(m, (size(0), size(6))), "corrupt", "a box of [6]"),
        (rechunk, "corrupt", "not as many elements"),
        (
            lambda m: (
                setattr(m.state_dict_metadata["model.w"], "size", size(3, 2)),
                rechunk(m, (size(0, 0), size(3, 2))),
            ),
            "corrupt", "but the metadata has",
        ),
    ],
)  # fmt: skip
def test_metadata_that_does_not_fit_is_refused(
    small: Path,
    run: Path,
    edit: Callable[[Any], object],
    code: str,
    cause: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    change(small, edit)
    found = refusal(small, run, capsys)
    assert (found[0], cause in found[1]) == (code, True), found


def test_a_tensor_larger_than_its_files_takes_no_memory(
    small: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def grow(metadata: Any) -> None:
        half = 1 << 50
        metadata.state_dict_metadata["model.w"].size = size(2 * half, 1)
        rechunk(metadata, (size(0, 0), size(half, 1)), (size(half, 0), size(half, 1)))

    change(small, grow)
    assert "its items are larger than its files" in refusal(small, run, capsys)[1]


def test_an_item_counts_only_once(
    small: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else a file of a megabyte makes tensors of any size."""

    def repeat(metadata: Any) -> None:
        boxes = [(size(2 * row, 0), size(2, 3)) for row in range(40)]
        metadata.state_dict_metadata["model.w"].size = size(80, 3)
        rechunk(metadata, *boxes)

    change(small, repeat)
    assert "its items are larger than its files" in refusal(small, run, capsys)[1]


def test_flipped_bytes_of_the_metadata_are_refused_or_harmless(small: Path, run: Path) -> None:
    path = small / ".metadata"
    whole = path.read_bytes()
    rng = random.Random(11)
    for trial in range(200):
        place = rng.randrange(len(whole))
        path.write_bytes(
            whole[:place] + bytes([whole[place] ^ (1 << rng.randrange(8))]) + whole[place + 1 :]
        )
        code = import_it(small, run.with_name(f"run{trial}"))
        assert code in (0, 3), (place, trial)
        if code == 0:  # nothing protects names; their values are protected
            with df.Checkpointer(run.with_name(f"run{trial}")) as ckpt:
                leaves = leaves_of(ckpt.load())
            assert leaves in ([[[0, 1, 2], [3, 4, 5]], 3], [3, [[0, 1, 2], [3, 4, 5]]]), place


def leaves_of(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in leaves_of(item)]
    return [value.tolist() if isinstance(value, torch.Tensor) else value]


def test_pickles_of_other_things_are_refused(
    small: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import pickle

    for value in ({}, [], None, 3, torch.Size([1]), metadata_of(small).storage_data):
        stream = io.BytesIO()
        pickle.dump(value, stream)
        (small / ".metadata").write_bytes(stream.getvalue())
        assert "it holds no Metadata" in refusal(small, run, capsys)[1]
