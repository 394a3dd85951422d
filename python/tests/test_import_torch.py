"""Files of torch.save: the values that are imported, and those that are refused without running."""

import tracemalloc
import zipfile
from collections import OrderedDict
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from import_kit import (
    DTYPES,
    Runs,
    import_it,
    imported,
    pickled,
    put_pickle,
    random_tensor,
    record_place,
    refusal,
    repack,
)
from testkit import Net, assert_same, flip, same, state_bits
from torch import nn

import deepfreeze as df
from deepfreeze.importing.pickle_names import names_in


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.pt"


def test_every_dtype_is_the_same_bit_for_bit(path: Path, run: Path) -> None:
    state = {str(dtype): random_tensor(dtype, 5, 3) for dtype in DTYPES}
    torch.save(state, path)
    found = imported(path, run)
    assert list(found) == list(state)
    for name, tensor in state.items():
        assert_same(found[name], tensor)


def test_a_training_state_is_restored_into_live_objects(path: Path, run: Path) -> None:
    torch.manual_seed(1)
    model = Net()
    optim = torch.optim.Adam(model.parameters())
    model(torch.randn(2, 3, 8, 8)).sum().backward()
    optim.step()
    torch.save({"model": model.state_dict(), "optim": optim.state_dict(), "epoch": 4}, path)
    assert import_it(path, run, "--step", "4") == 0

    torch.manual_seed(2)
    other = Net()
    live = {"model": other.state_dict(), "optim": optim.state_dict(), "epoch": 0}
    with df.Checkpointer(run) as ckpt:
        assert ckpt.restore(live) == 4
    assert live["epoch"] == 4
    assert state_bits(other) == state_bits(model), "state_dict() shares the module's memory"


def test_plain_values_and_containers_keep_their_types(path: Path, run: Path) -> None:
    state = {
        "ordered": OrderedDict(b=1, a=2),
        "ints": {0: "a", 1: b"bytes"},
        "tuple": (1, 2.5, None, True),
        "size": torch.Size([2, 3]),
        "dtype": torch.bfloat16,
        "set": {1, 2},
        "complex": 1 + 2j,
    }
    torch.save(state, path)
    assert same(imported(path, run), state)


def test_shared_memory_stays_shared(path: Path, run: Path) -> None:
    base = torch.arange(12.0)
    torch.save({"base": base, "row": base.view(3, 4)[1], "tied": base}, path)
    found = imported(path, run)
    found["base"][4] = 100.0
    assert found["row"][0] == 100.0
    assert found["tied"][4] == 100.0


def test_memory_formats_sparse_and_quantised_tensors(path: Path, run: Path) -> None:
    torch.manual_seed(1)
    state = {
        "last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "sparse": torch.eye(3).to_sparse(),
        "quantised": torch.quantize_per_tensor(torch.randn(4), 0.1, 3, torch.qint8),
        "parameter": nn.Parameter(torch.randn(2)),
    }
    torch.save(state, path)
    found = imported(path, run)
    assert_same(found["last"].contiguous(), state["last"].contiguous())
    assert torch.equal(found["sparse"].to_dense(), torch.eye(3))
    assert torch.equal(found["quantised"].int_repr(), state["quantised"].int_repr())
    assert_same(found["parameter"], state["parameter"])


@pytest.mark.parametrize("protocol", [2, 3])
def test_the_format_before_1_6(path: Path, run: Path, protocol: int) -> None:
    state = {"w": torch.arange(5), "n": 1}
    torch.save(state, path, _use_new_zipfile_serialization=False, pickle_protocol=protocol)
    found = imported(path, run)
    assert_same(found["w"], state["w"])


@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize("protocol", [2, 4])
def test_code_is_named_and_not_run(
    path: Path, run: Path, tmp_path: Path, new: bool, protocol: int,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    mark = tmp_path / "mark"
    state = {"w": torch.ones(3), "evil": Runs(mark)}
    torch.save(state, path, _use_new_zipfile_serialization=new, pickle_protocol=protocol)
    code, message = refusal(path, run, capsys)
    assert code == "unsupported"
    assert message.startswith(f"read {path}: to load it, Python would have to run ")
    assert "posix.system" in message
    assert not mark.exists()
    assert not run.exists()


def test_the_environment_can_not_have_code_run(
    path: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    torch.save({"evil": Runs(tmp_path / "mark")}, path)
    assert "posix.system" in refusal(path, run, capsys)[1]
    assert not (tmp_path / "mark").exists()


def test_whole_modules_and_numpy_are_named(
    path: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save(nn.Linear(2, 2), path)
    assert "torch.nn.modules.linear.Linear" in refusal(path, run, capsys)[1]
    torch.save({"loss": np.float64(3)}, path)
    assert "numpy" in refusal(path, run, capsys)[1]


def test_a_value_that_no_restore_could_fill_is_refused(
    path: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save(torch.ones(3), path)
    assert refusal(path, run, capsys)[0] == "encode"
    torch.save({"a": torch.ones(3).untyped_storage()}, path)
    code, message = refusal(path, run, capsys)
    assert code == "encode"
    assert message.startswith(f"read {path}: a: ")
    torch.save({"w": torch.ones([1] * 65), "also": torch.ones(2)}, path)
    code, message = refusal(path, run, capsys)
    assert (code, "too many dimensions" in message) == ("unsupported", True)


def test_values_that_are_one_in_the_file_do_not_fill_the_disk(
    path: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = bytes(1_000_000)
    torch.save({"x": [shared] * 20}, path)
    assert len(imported(path, run)["x"]) == 20
    torch.save({"x": [shared] * 200}, path)
    code, message = refusal(path, run.with_name("other"), capsys)
    assert code == "unsupported"
    assert "its arrays would take 200000000 bytes, its files have 100" in message


def test_a_flipped_bit_in_a_tensor_is_found(
    path: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({"w": torch.zeros(1000)}, path)
    place = record_place(path, "data/0")
    for offset in (0, 1999, 3999):
        flip(path, place + offset)
        code, message = refusal(path, run, capsys)
        assert (code, message) == (
            "corrupt", f"read {path}: record data/0: its CRC-32 does not match",
        )  # fmt: skip
        flip(path, place + offset)
    assert import_it(path, run) == 0


def test_files_without_checksums_are_imported(path: Path, run: Path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"w": torch.arange(9)}, path)
    finally:
        torch.serialization.set_crc32_options(True)
    assert_same(imported(path, run)["w"], torch.arange(9))


def test_a_file_that_is_cut_anywhere_is_refused(
    path: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({"w": torch.arange(20)}, path)
    whole = path.read_bytes()
    for size in range(0, len(whole), 97):
        path.write_bytes(whole[:size])
        assert refusal(path, run, capsys)[0] in ("corrupt", "unsupported")


def test_every_flipped_byte_is_refused_or_harmless(
    path: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = {"w": torch.arange(3), "text": "value"}
    torch.save(state, path)
    whole = path.read_bytes()
    for place in range(0, len(whole), 13):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x41]) + whole[place + 1 :])
        code = import_it(path, tmp_path / f"run{place}")
        assert code in (0, 3)
        if code == 0:  # a byte that only fills up
            found = df.Checkpointer(tmp_path / f"run{place}").load()
            assert found["text"] == "value"
            assert_same(found["w"], state["w"])


def test_archives_that_torch_does_not_write_are_refused(
    path: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fresh() -> None:
        torch.save({"w": torch.zeros(100)}, path)

    fresh()
    repack(path, lambda _, data: data, compression=zipfile.ZIP_DEFLATED)
    assert "is compressed" in refusal(path, run, capsys)[1]
    fresh()
    repack(path, lambda name, data: None if name == "data.pkl" else data)
    assert refusal(path, run, capsys)[0] == "corrupt"
    fresh()
    repack(path, lambda name, data: data[:50] if name == "data/0" else data)
    assert "data/0 does not have its 100 elements" in refusal(path, run, capsys)[1]
    fresh()
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("other/data.pkl", b"\x80\x02}.")
    assert "two records of one name" in refusal(path, run, capsys)[1]


def test_an_archive_that_torch_would_read_otherwise_is_refused(
    path: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two saves into one open file: torch finds the first, zipfile the second."""
    (tmp_path / "two").mkdir()
    both = b""
    for place, epoch in ((path, 1), (tmp_path / "two" / path.name, 2)):
        torch.save({"w": torch.arange(8.0), "epoch": epoch}, place)
        both += place.read_bytes()
    path.write_bytes(both)
    assert torch.load(path)["epoch"] == 1
    flip(path, both.index(torch.arange(8.0).numpy().tobytes()))  # the part that torch would read
    code, message = refusal(path, run, capsys)
    assert code == "corrupt"
    assert f"something else before byte {len(both) // 2}" in message


def test_records_are_found_by_torch_in_any_case(
    path: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which of the two its binary search comes upon depends on the others."""
    torch.save({"epoch": 2}, path)
    with zipfile.ZipFile(path) as archive:
        other = archive.read("model/data.pkl")
    torch.save({"epoch": 1}, path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("model/DATA.PKL", other)
    assert "two records of one name" in refusal(path, run, capsys)[1]


def test_records_that_overlap_or_a_comment_are_refused(
    path: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({"w": torch.zeros(1000)}, path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"x"
    assert "the archive has a comment" in refusal(path, run, capsys)[1]
    torch.save({"w": torch.zeros(1000)}, path)
    with zipfile.ZipFile(path, "a") as archive:
        (big,) = (info for info in archive.infolist() if info.filename.endswith("data/0"))
        for number in range(1, 9):  # a checksum of nine times what is there
            info = copy(big)
            info.filename = f"model/data/{number}"
            archive.filelist.append(info)
        archive.writestr("model/last", b"")
    assert "its records overlap" in refusal(path, run, capsys)[1]


def test_a_record_beyond_the_end_is_refused(
    path: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a file of DCP, the bytes of the next item are there."""
    torch.save({"w": torch.zeros(8)}, path)
    data = bytearray(path.read_bytes())
    last = data.rindex(b"PK\1\2")
    for place in (last + 20, last + 24):  # its sizes, packed and not
        data[place : place + 4] = (800).to_bytes(4, "little")
    path.write_bytes(data)
    assert "ends beyond the archive" in refusal(path, run, capsys)[1]


def test_a_text_in_many_places_takes_no_memory(
    path: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({"x": ["t" * 1_000_000] * 300}, path)
    tracemalloc.start()
    code, message = refusal(path, run, capsys)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert code == "unsupported"
    assert message == f"read {path}: its texts have more than 268435456 characters"
    assert peak < 50_000_000


def test_torchscript_is_refused(path: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({}, path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("model/constants.pkl", b"")
    assert "TorchScript" in refusal(path, run, capsys)[1]


def test_names_are_read_from_all_kinds_of_pickles() -> None:
    import io
    import pickle

    class Named:
        def __reduce__(self) -> Any:
            return eval, ("1",)

    for protocol in range(6):
        data = pickle.dumps(["builtins", Named(), "eval", Named()], protocol=protocol)
        names = names_in(io.BytesIO(data))
        assert [name.replace("__builtin__", "builtins") for name in names] == ["builtins.eval"]
    assert names_in(io.BytesIO(b"(S'x'\nios\nsystem\n.")) == ["os.system"]
    assert names_in(io.BytesIO(b"cos\nsystem\n\xff\xff")) == ["os.system"]


def claimed(count: int) -> bytes:
    """A tensor of all elements of storage 0, which has eight."""
    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n((" + pickled(b"storage") + b"ctorch\nFloatStorage\n"
        + pickled(b"0") + pickled(b"cpu") + pickled(count) + b"tQ" + pickled(0)
        + pickled(count) + b"\x85" + pickled(1) + b"\x85" + b"\x89ccollections\nOrderedDict\n)RtR"
    )  # fmt: skip


def test_a_storage_is_claimed_only_once(
    path: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """torch believes the first claim, and would show the file from there on."""
    put_pickle(path, claimed(8))
    assert imported(path, run, "--step", "1")["x"].tolist() == list(range(8))
    put_pickle(path, b"(" + claimed(500) + claimed(8) + b"t")
    code, message = refusal(path, run.with_name("other"), capsys)
    assert (code, "claims storage 0 twice" in message) == ("corrupt", True)


@pytest.mark.parametrize(
    ("operations", "kind"),
    [
        (b"ctorch\nFloatTensor\n" + pickled(1000) + b"\x85R", "FloatTensor"),
        (b"ctorch\nTensor\n" + pickled(1000) + b"\x85\x81", "Tensor"),
        (b"ctorch.storage\nTypedStorage\n" + pickled(1000) + b"\x85R", "TypedStorage"),
        (b"c__builtin__\nbytearray\n" + pickled(1 << 30) + b"\x85R", "bytearray"),
    ],
)
def test_memory_that_nothing_fills_is_not_imported(
    path: Path, run: Path, operations: bytes, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """weights_only makes them, of whatever the process has had there before."""
    put_pickle(path, operations)
    code, message = refusal(path, run, capsys)
    assert (code, message) == (
        "corrupt", f"read {path}: it makes a {kind} without giving its contents",
    )  # fmt: skip
    torch.save({"x": 1}, path, _use_new_zipfile_serialization=False)
    path.write_bytes(path.read_bytes().replace(b"K\x01s", operations + b"s"))
    assert refusal(path, run, capsys) == (code, message)


def test_bytearrays_keep_their_contents(path: Path, run: Path) -> None:
    torch.save({"a": bytearray(b"\xff\x00"), "b": bytearray()}, path)
    assert imported(path, run) == {"a": bytearray(b"\xff\x00"), "b": bytearray()}


def test_no_memory_is_taken_for_what_a_pickle_only_says(
    path: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put_pickle(path, b"Nr" + (20_000_000).to_bytes(4, "little"))  # a memo of 320 MB
    tracemalloc.start()
    assert import_it(path, run) == 0
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50_000_000


def test_a_file_of_a_big_endian_machine(path: Path, run: Path) -> None:
    tensor = torch.arange(5, dtype=torch.int16)
    torch.save({"w": tensor}, path)
    swapped = {"byteorder": b"big", "data/0": tensor.numpy().byteswap().tobytes()}
    repack(path, swapped.get)
    assert_same(imported(path, run)["w"], tensor)
