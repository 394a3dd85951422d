"""safetensors files and directories of them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from import_kit import DTYPES, import_it, imported, random_tensor, refusal, safetensors_bytes
from safetensors.torch import save_file
from testkit import Net, assert_same, bits, data_file, save, state_bits

import deepfreeze as df


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


def test_every_dtype_is_the_same_bit_for_bit(path: Path, run: Path) -> None:
    # safetensors itself has no complex128.
    dtypes = [dtype for dtype in DTYPES if dtype != torch.complex128]
    state = {f"{dtype}": random_tensor(dtype, 5, 3) for dtype in dtypes}
    save_file(state, path)
    found = imported(path, run)
    assert set(found) == set(state)
    for name, tensor in state.items():
        assert_same(found[name], tensor)


def test_types_without_a_twin_survive(
    path: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = bytes(range(24))
    path.write_bytes(
        safetensors_bytes(
            {
                "six": {"dtype": "F6_E2M3", "shape": [2, 4], "data_offsets": [0, 6]},
                "four": {"dtype": "F4", "shape": [2, 8], "data_offsets": [6, 14]},
                "odd": {"dtype": "F4", "shape": [4, 3], "data_offsets": [14, 20]},
                "none": {"dtype": "F6_E3M2", "shape": [0], "data_offsets": [20, 20]},
                "last": {"dtype": "F32", "shape": [], "data_offsets": [20, 24]},
            },
            data,
        )
    )
    found = imported(path, run)
    assert "warning: six: no framework has F6_E2M3" in capsys.readouterr().err
    assert (found["six"]["dtype"], found["six"]["shape"]) == ("F6_E2M3", [2, 4])
    assert bits(found["six"]["data"]) == list(data[:6])
    assert (found["four"].dtype, found["four"].shape) == (torch.float4_e2m1fn_x2, (2, 4))
    assert bits(found["four"].view(torch.uint8)) == list(data[6:14])
    assert (found["odd"]["dtype"], found["odd"]["shape"]) == ("F4", [4, 3])
    assert bits(found["odd"]["data"]) == list(data[14:20])
    assert found["none"]["data"].numel() == 0
    assert bits(found["last"]) == list(data[20:])

    live = {**found, "six": {**found["six"], "data": torch.zeros(6, dtype=torch.uint8)}}
    with df.Checkpointer(run) as ckpt:
        assert ckpt.restore(live) == 0
    assert bits(live["six"]["data"]) == list(data[:6])


def test_a_file_is_restored_into_a_module(path: Path, run: Path) -> None:
    torch.manual_seed(1)
    model = Net()
    save_file(model.state_dict(), path)
    assert import_it(path, run) == 0
    torch.manual_seed(2)
    other = Net()
    with df.Checkpointer(run) as ckpt:
        assert ckpt.restore(other.state_dict()) == 0
    assert state_bits(other) == state_bits(model)


def test_odd_names_and_places(path: Path, run: Path) -> None:
    # The data begins at an odd place, and each tensor too.
    names = ["", ".", "a.b", "a..b", "$", "@rank00003.x", "~", "%", "\n", "ü" * 40]
    header: dict[str, Any] = {"__metadata__": {"by": "a test"}}
    place = 0
    for name in names:
        header[name] = entry(place, place + 1)
        place += 1
    header["wide"] = {"dtype": "F64", "shape": [2], "data_offsets": [place, place + 16]}
    text = json.dumps(header)
    text += " " * (1 - len(text) % 2)
    data = bytes(range(len(names))) + bytes(range(100, 116))
    path.write_bytes(safetensors_bytes(text.encode(), data))
    found = imported(path, run)
    assert list(found) == [*names, "wide"]
    assert [found[name].item() for name in names] == list(range(len(names)))
    assert bits(found["wide"]) == list(range(100, 116))


def test_no_framework_is_needed(path: Path, run: Path) -> None:
    import subprocess
    import sys

    save_file({"w": torch.ones(3)}, path)
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from deepfreeze.__main__ import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program, "import", path, run]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    torch.save({"w": 1}, path)
    command += ["--step", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "import from torch: " in done.stderr


def entry(begin: int, end: int, dtype: Any = "U8", shape: Any = None) -> dict[str, Any]:
    return {
        "dtype": dtype,
        "shape": [end - begin] if shape is None else shape,
        "data_offsets": [begin, end],
    }


@pytest.mark.parametrize(
    ("header", "cause"),
    [
        (b'{"a": 1, "a": 2}', "'a' stands twice"),
        (b'{"a": {"dtype": "U8", "dtype": "U8"}}', "'dtype' stands twice"),
        (b"{", "the header"),
        (b"{\xff}", "the header"),
        (b"{" + b'"a":{' * 100_000, "the header"),
        (b'{"\\ud800": {}}', "the header"),
        ({"a": [1]}, "'a' is no object"),
        ({"a": {}}, "dtype None"),
        ({"a": entry(0, 8, "C128")}, "dtype 'C128'"),
        ({"a": entry(0, 8, ["U8"])}, "dtype"),
        ({"a": entry(0, 8, shape=[True, 8])}, "no lists of sizes"),
        ({"a": entry(0, 8, shape=[-8])}, "no lists of sizes"),
        ({"a": entry(0, 8, shape=[8.0])}, "no lists of sizes"),
        ({"a": entry(0, 0, shape=[0, 1 << 70])}, "no lists of sizes"),
        ({"a": entry(0, 0, "F64", [1 << 62, 1 << 62, 0])}, "is too large"),
        ({"a": entry(0, 0, "F64", [0, 1 << 61])}, "is too large"),
        ({"a": entry(0, 8, shape=8)}, "no lists of sizes"),
        ({"a": {"dtype": "U8", "shape": [8], "data_offsets": [0]}}, "no lists of sizes"),
        ({"a": entry(0, 8, shape=[9])}, "8 bytes are no U8[9]"),
        ({"a": entry(0, 8, "F6_E2M3", [11])}, "8 bytes are no F6_E2M3[11]"),
        ({"a": entry(0, 4), "b": entry(5, 8)}, "'b' begins at"),
        ({"a": entry(0, 5), "b": entry(4, 8)}, "'b' begins at"),
        ({"a": entry(1, 8)}, "'a' begins at"),
        ({"a": entry(0, 7)}, "the data ends at"),
        ({"a": entry(0, 9)}, "the data ends at"),
        ({"a": entry(0, 8), "__metadata__": {"a": 1}}, "not of strings"),
        ({"a": entry(0, 8), "__metadata__": "text"}, "not of strings"),
    ],
)
def test_bad_headers_are_refused(
    path: Path, run: Path, header: Any, cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path.write_bytes(safetensors_bytes(header, bytes(8)))
    code, message = refusal(path, run, capsys, "--from", "safetensors")
    assert code == "corrupt"
    assert message.startswith(f"read {path} at ")
    assert cause in message


def test_a_file_that_is_cut_anywhere_is_refused(
    path: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_file({"a": torch.arange(9), "b": torch.ones(2, 2)}, path)
    whole = path.read_bytes()
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        assert refusal(path, run, capsys)[0] in ("corrupt", "unsupported")


def test_files_whose_tensors_are_not_what_they_seem_are_refused(
    path: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with df.Checkpointer(tmp_path / "other") as ckpt:
        save(ckpt, 1, {"z": torch.ones(2, dtype=torch.complex64)})
    assert "DeepFreeze run" in refusal(data_file(tmp_path / "other", 1), run, capsys)[1]
    for name in ("shard-00001-model-00001-of-00001.safetensors", "renamed.safetensors"):
        save_file({"a": torch.ones(2)}, tmp_path / name, {"DCP_SHARDING_INFO": "{}"})
        assert "consolidate_safetensors_files" in refusal(tmp_path / name, run, capsys)[1]


# Directories


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files and their index, as Hugging Face's libraries write them."""
    folder = tmp_path / "model"
    folder.mkdir()
    save_file({"a": torch.arange(4)}, folder / "model-00001-of-00002.safetensors")
    save_file({"b.c": torch.ones(3)}, folder / "model-00002-of-00002.safetensors")
    put_index(folder, a="model-00001-of-00002.safetensors", **{
        "b.c": "model-00002-of-00002.safetensors"
    })  # fmt: skip
    return folder


def put_index(folder: Path, **places: Any) -> None:
    document = {"metadata": {"total_size": 44}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(document))


def test_a_directory_is_what_its_index_says(folder: Path, run: Path) -> None:
    found = imported(folder, run)
    assert list(found) == ["a", "b.c"]
    assert_same(found["a"], torch.arange(4))
    assert_same(found["b.c"], torch.ones(3))


def test_a_directory_of_one_file_needs_no_index(folder: Path, run: Path) -> None:
    (folder / "model.safetensors.index.json").unlink()
    (folder / "model-00002-of-00002.safetensors").unlink()
    assert list(imported(folder, run)) == ["a"]


def test_links_of_a_cache_are_followed(folder: Path, run: Path, tmp_path: Path) -> None:
    cache = tmp_path / "snapshot"
    cache.mkdir()
    for path in folder.iterdir():
        (cache / path.name).symlink_to(path)
    assert list(imported(cache, run)) == ["a", "b.c"]


def test_a_tensor_that_the_index_does_not_name_is_left_out_and_told(
    folder: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put_index(folder, a="model-00001-of-00002.safetensors")
    save_file(
        {"a": torch.arange(4), "x": torch.ones(1)}, folder / "model-00001-of-00002.safetensors"
    )
    assert list(imported(folder, run)) == ["a"]
    assert "does not name 1 tensors of its files, left out: x" in capsys.readouterr().err


@pytest.mark.parametrize(
    "place",
    ["../secret.safetensors", "/etc/secret.safetensors", "sub/secret.safetensors", "..", ".",
     "", "a\0.safetensors", "passwd", 5, None, ["a"]],
)  # fmt: skip
def test_names_that_lead_elsewhere_are_refused(
    folder: Path, run: Path, place: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    save_file({"a": torch.ones(1)}, folder.parent / "secret.safetensors")
    put_index(folder, a=place)
    code, message = refusal(folder, run, capsys)
    assert code == "corrupt"
    assert "which is no file of that directory" in message


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"weight_map": []}', '{"weight_map": {"a": "x", "a": "y"}}', "{" * 100_000,
     '{"weight_map": {"\\ud800": "a.safetensors"}}', "\xff"],
)  # fmt: skip
def test_bad_indices_are_refused(
    folder: Path, run: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    index = folder / "model.safetensors.index.json"
    index.write_bytes(text.encode("latin-1"))
    code, message = refusal(folder, run, capsys)
    assert code == "corrupt"
    assert message.startswith(f"read {index}: ")


def test_what_an_index_names_must_be_there(
    folder: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put_index(folder, a="model-00001-of-00002.safetensors", z="model-00002-of-00002.safetensors")
    code, message = refusal(folder, run, capsys)
    assert code == "incomplete"
    assert "(z): model-00002-of-00002.safetensors has no such tensor" in message
    (folder / "model-00002-of-00002.safetensors").unlink()
    assert refusal(folder, run, capsys)[0] == "not_found"


def test_a_directory_must_say_which_file_is_meant(
    folder: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "other.safetensors.index.json").write_text("{}")
    assert "it has 2 files *.safetensors.index.json" in refusal(folder, run, capsys)[1]
    for index in folder.glob("*.json"):
        index.unlink()
    assert "and 2 files *.safetensors (model-" in refusal(folder, run, capsys)[1]
