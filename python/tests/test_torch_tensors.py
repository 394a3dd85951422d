"""torch tensors: every dtype, layout and way to share memory."""

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from testkit import assert_same, bits, data_file, header, round_trip, save
from torch import nn

import deepfreeze as df
from deepfreeze.frameworks.torch import tensors as torch_tensors
from deepfreeze.frameworks.torch.sharded import Shard

NATIVE = {
    torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.int16: "I16",
    torch.uint16: "U16", torch.int32: "I32", torch.uint32: "U32", torch.int64: "I64",
    torch.uint64: "U64", torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32",
    torch.float64: "F64", torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
}  # fmt: skip


OTHERS = [
    value
    for name, value in sorted(vars(torch).items())
    if isinstance(value, torch.dtype)
    and str(value) == f"torch.{name}"
    and value not in NATIVE
    and not name.startswith(("qint", "quint"))  # quantised tensors are tested on their own
]


COMPLEX = {torch.complex64: "F32", torch.complex128: "F64"}


def tensor_of(dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Three by two elements of random bits, or of 0 and 1 if they must be."""
    generator = torch.Generator().manual_seed(seed)
    top = 2 if dtype == torch.bool else 256
    data = torch.randint(0, top, (6 * dtype.itemsize,), dtype=torch.uint8, generator=generator)
    return data.view(dtype).view(3, 2)


@pytest.mark.parametrize("dtype", [*NATIVE, *OTHERS], ids=str)
def test_every_dtype_is_kept_bit_by_bit(ckpt: df.Checkpointer, dtype: torch.dtype) -> None:
    state = {"x": tensor_of(dtype), "t": tensor_of(dtype, 1).t()}
    loaded = round_trip(ckpt, state)
    assert_same(loaded["x"], state["x"])
    assert_same(loaded["t"], state["t"])
    live = {"x": tensor_of(dtype, 2), "t": tensor_of(dtype, 3).t()}
    assert ckpt.restore(live) == 1
    assert_same(live["x"], state["x"])
    assert_same(live["t"], state["t"])


@pytest.mark.parametrize("dtype", [*NATIVE, *OTHERS], ids=str)
def test_the_stored_dtype_is_as_agreed(ckpt: df.Checkpointer, dtype: torch.dtype) -> None:
    save(ckpt, 1, {"x": tensor_of(dtype)})
    entry = header(data_file(ckpt.path, 1))["x"]
    if dtype in NATIVE:
        assert (entry["dtype"], entry["shape"]) == (NATIVE[dtype], [3, 2])
    elif dtype in COMPLEX:
        assert (entry["dtype"], entry["shape"]) == (COMPLEX[dtype], [3, 2, 2])
    else:
        assert (entry["dtype"], entry["shape"]) == ("U8", [3, 2, dtype.itemsize])


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(3.5),
        torch.empty(0),
        torch.empty(2, 0, 3, dtype=torch.int16),
        torch.tensor(1j),
        torch.arange(24.0).view(2, 3, 4).permute(2, 0, 1),
        torch.arange(20.0).view(4, 5)[:, 1::2],
        torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        torch.arange(3.0).expand(4, 3),
        torch.tensor(2.0).expand(3, 3),
        torch.arange(10.0).unfold(0, 4, 2),
        torch.randn(3, dtype=torch.complex64).conj(),
        torch.randn(3, dtype=torch.complex64).conj().imag,
        torch.randn(2, 3, dtype=torch.complex128).mH,
        torch._neg_view(torch.randn(3)),
        torch.randn(3, requires_grad=True),
        nn.Parameter(torch.randn(2)),
        torch.randn(3).view(torch.int32),
    ],
    ids=lambda t: f"{t.dtype}{list(t.shape)}{list(t.stride())}",
)
def test_any_layout_comes_back(ckpt: df.Checkpointer, tensor: torch.Tensor) -> None:
    assert_same(round_trip(ckpt, {"x": tensor})["x"], tensor)
    source = tensor.detach().clone(memory_format=torch.preserve_format)
    live = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    live = torch._neg_view(live) if tensor.is_neg() else live
    live = live.conj() if tensor.is_conj() else live
    address = live.data_ptr()
    state = {"x": live}
    ckpt.restore(state)
    assert state["x"] is live
    assert live.data_ptr() == address
    assert_same(live, source)


def test_weights_stored_tied_fill_two_live_ones(ckpt: df.Checkpointer) -> None:
    weight = torch.randn(3)
    save(ckpt, 1, {"a": weight, "b": weight})
    live = {"a": torch.zeros(3), "b": torch.zeros(3)}
    ckpt.restore(live)
    assert_same(live["a"], weight)
    assert_same(live["b"], weight)
    live["b"].zero_()
    assert_same(live["a"], weight)


def test_weights_stored_apart_do_not_go_into_one(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"a": torch.ones(3), "b": torch.zeros(3)})
    one = torch.full((3,), 7.0)
    with pytest.raises(df.MismatchError, match="b: it shares its memory with a"):
        ckpt.restore({"a": one, "b": one})
    assert one.tolist() == [7.0] * 3


def test_views_of_one_memory_are_stored_once_and_stay_views(ckpt: df.Checkpointer) -> None:
    base = torch.arange(12.0).view(3, 4)
    state = {"row": base[1], "base": base, "column": base[:, 2], "bytes": base.view(torch.int32)}
    loaded = round_trip(ckpt, state)
    stored = sum(
        entry["data_offsets"][1] - entry["data_offsets"][0]
        for name, entry in header(data_file(ckpt.path, 1)).items()
        if name != "__metadata__"
    )
    assert stored == 12 * 4
    for name, tensor in state.items():
        assert_same(loaded[name], tensor)
    loaded["base"][1, 2] = 99.0
    assert loaded["row"][2] == 99.0
    assert loaded["column"][1] == 99.0

    other = torch.zeros(3, 4)
    live = {"row": other[1], "base": other, "column": other[:, 2], "bytes": other.view(torch.int32)}
    ckpt.restore(live)
    assert_same(other, base)


def test_views_that_overlap_in_part_stay_shared(ckpt: df.Checkpointer) -> None:
    memory = torch.arange(10, dtype=torch.int16)
    state = {"low": memory[1:6], "high": memory[4:10], "wide": memory[2:4].view(torch.float32)}
    loaded = round_trip(ckpt, state)
    for name, tensor in state.items():
        assert_same(loaded[name], tensor)
    loaded["low"][4] = -1
    assert loaded["high"][1] == -1


def test_a_wider_type_that_lies_across_the_elements_of_another(ckpt: df.Checkpointer) -> None:
    memory = torch.arange(8, dtype=torch.int32)
    state = {"all": memory[1:7], "two": memory.view(torch.int64)[1:3]}
    loaded = round_trip(ckpt, state)
    assert_same(loaded["all"], state["all"])
    assert_same(loaded["two"], state["two"])


def test_repeated_elements_are_filled_from_those_that_repeat_likewise(
    ckpt: df.Checkpointer,
) -> None:
    save(ckpt, 1, {"x": torch.tensor([1.0, 2.0]).expand(2, 2)})
    with pytest.raises(df.MismatchError, match="x: its elements share memory"):
        ckpt.restore({"x": torch.zeros(2, 1).expand(2, 2)})
    live = torch.zeros(1, 2).expand(2, 2)
    ckpt.restore({"x": live})
    assert live.tolist() == [[1.0, 2.0]] * 2


def test_windows_that_overlap_are_stored_as_the_memory_that_they_show(
    ckpt: df.Checkpointer,
) -> None:
    windows = torch.arange(6.0).unfold(0, 3, 1)
    save(ckpt, 1, {"x": windows})
    entry = header(data_file(ckpt.path, 1))["x.storage"]
    assert (entry["dtype"], entry["shape"]) == ("F32", [6])
    live = torch.zeros(6).unfold(0, 3, 1)
    ckpt.restore({"x": live})
    assert_same(live, windows)


def test_a_part_of_a_tensor_is_filled(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(ckpt, 1, {"x": torch.arange(4.0)})
    part = torch.zeros(2)
    monkeypatch.setattr(torch_tensors, "_PLAIN", ())  # so that it asks for the shard
    monkeypatch.setattr(torch_tensors, "shard_of", lambda _: Shard(part, ((2,), (4,))))
    ckpt.restore({"x": torch.zeros(4)})
    assert part.tolist() == [2.0, 3.0]


def test_neighbours_in_one_memory_are_entries_of_their_own(ckpt: df.Checkpointer) -> None:
    flat = torch.arange(10.0)
    save(ckpt, 1, {"a": flat[:4], "b": flat[4:]})
    entries = header(data_file(ckpt.path, 1))
    assert entries["a"]["shape"] == [4]
    assert entries["b"]["shape"] == [6]


views = st.tuples(
    st.integers(0, 1),  # which memory
    st.sampled_from([torch.float32, torch.int16, torch.uint8]),
    st.integers(0, 3),  # first element
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=3),  # sizes and strides
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(views, min_size=1, max_size=5))
def test_any_views_come_back_and_share_as_before(
    tmp_path_factory: pytest.TempPathFactory, shapes: list[Any]
) -> None:
    memories = [torch.arange(128, dtype=torch.uint8), torch.arange(128, 256, dtype=torch.uint8)]
    state = {
        str(index): memories[which].view(dtype).as_strided(
            [size for size, _ in dims], [stride for _, stride in dims], offset
        )
        for index, (which, dtype, offset, dims) in enumerate(shapes)
    }  # fmt: skip
    with df.Checkpointer(tmp_path_factory.mktemp("run")) as ckpt:
        loaded = round_trip(ckpt, state)
        for name, tensor in state.items():
            assert_same(loaded[name], tensor)
        expected = {name: bits(tensor) for name, tensor in state.items()}
        for memory in memories:
            memory.zero_()
        ckpt.restore(state)
        assert {name: bits(tensor) for name, tensor in state.items()} == expected
    for name, tensor in loaded.items():
        for other, second in loaded.items():
            if _lie_in_one(state[name], state[other]) and tensor.numel() and second.numel():
                assert tensor.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()


def _lie_in_one(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.numel() > 0 and other.numel() > 0 and one.data_ptr() == other.data_ptr()


def test_two_storages_over_one_memory(ckpt: df.Checkpointer) -> None:
    import numpy as np

    array = np.arange(8, dtype=np.float32)
    state = {"a": torch.from_numpy(array[:6]), "b": torch.from_numpy(array[3:])}
    loaded = round_trip(ckpt, state)
    assert_same(loaded["a"], state["a"])
    assert_same(loaded["b"], state["b"])


@pytest.mark.parametrize("coalesced", [True, False])
def test_sparse_coo_is_lossless(ckpt: df.Checkpointer, coalesced: bool) -> None:
    sparse = torch.sparse_coo_tensor(
        torch.tensor([[0, 1, 1], [2, 0, 0]]), torch.tensor([3.0, 4.0, 5.0]), (2, 3)
    )
    sparse = sparse.coalesce() if coalesced else sparse
    loaded = round_trip(ckpt, {"x": sparse})["x"]
    live = {"x": torch.zeros(2, 3).to_sparse()}
    ckpt.restore(live)
    for found in (loaded, live["x"]):
        assert found.is_coalesced() == coalesced
        assert_same(found._indices(), sparse._indices())
        assert_same(found._values(), sparse._values())


@pytest.mark.parametrize("layout", ["csr", "csc", "bsr", "bsc"])
def test_compressed_sparse_is_lossless(ckpt: df.Checkpointer, layout: str) -> None:
    dense = torch.tensor([[0.0, 1, 0, 2], [0, 0, 0, 0], [3, 0, 0, 0], [0, 0, 4, 0]])
    block = ((2, 2),) if layout.startswith("b") else ()
    sparse = getattr(dense, f"to_sparse_{layout}")(*block)
    loaded = round_trip(ckpt, {"x": sparse})["x"]
    assert loaded.layout == sparse.layout
    assert torch.equal(loaded.to_dense(), dense)


def test_per_tensor_quantised_is_lossless(ckpt: df.Checkpointer) -> None:
    x = torch.quantize_per_tensor(torch.randn(4), 0.1, 3, torch.qint8)
    loaded = round_trip(ckpt, {"x": x})["x"]
    assert (loaded.dtype, loaded.q_scale(), loaded.q_zero_point()) == (torch.qint8, 0.1, 3)
    assert torch.equal(loaded.int_repr(), x.int_repr())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.empty(2, device="meta"), "meta"),
        (torch.nested.nested_tensor([torch.ones(1)], layout=torch.jagged), "NestedTensor"),
        (torch.Generator(), "Generator"),
        (torch.strided, "layout"),
        (nn.parameter.UninitializedParameter(), "a lazy parameter; run a forward pass"),
    ],
    ids=lambda value: value if isinstance(value, str) else "value",
)
def test_what_cannot_be_stored_names_its_path(
    ckpt: df.Checkpointer, value: object, text: str
) -> None:
    with pytest.raises(df.EncodeError, match=rf"(?s)^a\.0.*{text}"):
        ckpt.save(1, {"a": [value]})
    assert ckpt.steps() == []
    save(ckpt, 1, {"a": 1})


def test_small_torch_values(ckpt: df.Checkpointer) -> None:
    state = {"s": torch.Size([2, 3]), "d": torch.bfloat16, "w": torch.device("cuda:1")}
    loaded = round_trip(ckpt, state)
    assert loaded == state
    assert [type(value) for value in loaded.values()] == [type(v) for v in state.values()]
    live: dict[str, Any] = {"s": torch.Size([1]), "d": torch.int8, "w": torch.device("cpu")}
    ckpt.restore(live)
    assert live == state
