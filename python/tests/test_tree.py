import contextlib
import enum
import itertools
import json
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from testkit import same

import deepfreeze as df
from deepfreeze.base.names import KeyFilter, KeyTable, component, join
from deepfreeze.state.encoder import DEPTH_MAX, Encoder, dumps
from deepfreeze.state.tree import Decoder, loads
from deepfreeze.state.tree_parts import pruned


class NoLeaves:
    """Stands in for the adapters: nothing but plain values is known."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.direct: dict[type, Any] = {}

    def encode_leaf(self, value: object, path: str) -> Any:
        raise df.EncodeError(f"{path}: {type(value).__name__}")

    def store_bytes(self, data: bytes, path: str) -> str:
        self.blobs[path] = data
        return path


def encode(value: object, path: str = "") -> Any:
    return Encoder(NoLeaves()).encode(value, path)


def text_of(value: object) -> str:
    return dumps(encode(value))


def refuse_leaf(tag: str, node: Any, path: str) -> object:
    raise ValueError(f"unknown tag {tag}")


def decode(node: Any) -> Any:
    return Decoder(refuse_leaf).decode(node, "")


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
atoms = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(1 << 300), max_value=1 << 300),
    st.floats(),
    st.complex_numbers(),
    texts,
    st.binary(max_size=40),
)
keys = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), texts, st.binary(max_size=5), st.floats()),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=2),
    max_leaves=4,
)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    mappings = st.dictionaries(keys, inner, max_size=4)
    return st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(texts | st.just("$"), inner, max_size=4),
        mappings,
        mappings.map(OrderedDict),
        mappings.map(lambda m: defaultdict(list, m)),
        st.dictionaries(keys, st.integers(), max_size=3).map(Counter),
        st.sets(keys, max_size=3),
        st.frozensets(keys, max_size=3),
    )


trees = st.recursive(atoms, containers, max_leaves=25)


@settings(max_examples=400, deadline=None)
@given(trees)
def test_any_plain_value_comes_back_exactly(value: Any) -> None:
    assert same(decode(loads(text_of(value))), value)


@settings(max_examples=100, deadline=None)
@given(trees)
def test_equal_values_give_equal_text(value: Any) -> None:
    assert text_of(value) == text_of(decode(loads(text_of(value))))


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), texts),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(texts, inner, max_size=3),
        st.builds(
            lambda tag, v, more: {"$": tag, "v": v, **more},
            st.sampled_from(
                ["int", "float", "bytes", "tuple", "dict", "set", "frozenset", "odict", "counter",
                 "defaultdict", "complex", "tensor", "nonsense"]
            ),
            inner,
            st.dictionaries(st.sampled_from(["f", "re", "im", "k"]), inner, max_size=2),
        ),
    ),
    max_leaves=10,
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(json_values)
def test_a_foreign_tree_gives_a_value_or_a_corrupt_error(node: Any) -> None:
    with contextlib.suppress(df.CorruptError):
        decode(loads(json.dumps(node)))


@pytest.mark.parametrize("text", ["", "{", "NaN", "[Infinity]", "{'a': 1}", "\x00", "[1,]"])
def test_a_text_that_is_no_json_is_corrupt(text: str) -> None:
    with pytest.raises(df.CorruptError):
        loads(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1 << 53, "9007199254740992"),
        ((1 << 53) + 1, '{"$":"int","v":"9007199254740993"}'),
        (1.0, "1.0"),
        (1e300, "1e+300"),
        (-0.0, "-0.0"),
        (float("nan"), '{"$":"float","v":"nan"}'),
        (float("-inf"), '{"$":"float","v":"-inf"}'),
        (True, "true"),
        ("ä\n", '"ä\\n"'),
        (b"\x00\xff", '{"$":"bytes","v":"AP8="}'),
        ((1, [2]), '{"$":"tuple","v":[1,[2]]}'),
        ({"b": 1, "a": 2}, '{"b":1,"a":2}'),
        ({"$": 1}, '{"$":"dict","v":[["$",1]]}'),
        ({1: None}, '{"$":"dict","v":[[1,null]]}'),
        ({2, 1}, '{"$":"set","v":[1,2]}'),
        (frozenset(), '{"$":"frozenset","v":[]}'),
        (OrderedDict(a=1), '{"$":"odict","v":[["a",1]]}'),
        (Counter("aa"), '{"$":"counter","v":[["a",2]]}'),
        (defaultdict(int, a=1), '{"$":"defaultdict","f":"int","v":[["a",1]]}'),
        (defaultdict(None), '{"$":"defaultdict","f":"none","v":[]}'),
        (1 - 2j, '{"$":"complex","re":1.0,"im":-2.0}'),
    ],
)
def test_the_text_is_as_agreed(value: object, text: str) -> None:
    assert text_of(value) == text


def test_long_bytes_become_an_entry() -> None:
    leaves = NoLeaves()
    node = Encoder(leaves).encode({"a": b"x" * 4096, "b": b"y" * 4097}, "")
    assert node["b"] == {"$": "blob", "k": "b"}
    assert leaves.blobs == {"b": b"y" * 4097}


class Colour(enum.IntEnum):
    RED = 1


class Text(str):
    __slots__ = ()


class Floaty(float):
    pass


class Listy(list[int]):
    pass


@pytest.mark.parametrize(
    "value",
    [Colour.RED, Text("a"), Floaty(1.0), Listy(), object(), len, int, range(3), Ellipsis],
)
def test_a_type_that_would_change_is_refused_by_its_path(value: object) -> None:
    with pytest.raises(df.EncodeError, match=r"^a\.0\.b"):
        encode({"a": [{"b": value}]})


@pytest.mark.parametrize(
    "value",
    ["\ud800", 10**5000, {"\ud800": 1}, defaultdict(lambda: 1), defaultdict(object)],
    ids=lambda value: type(value).__name__,
)
def test_a_value_without_a_text_is_refused_by_its_path(value: object) -> None:
    with pytest.raises(df.EncodeError, match=r"^a\.1"):
        encode({"a": [0, value]})


def nested(kind: type, depth: int) -> Any:
    value: Any = kind()
    for _ in range(depth - 1):
        value = {"k": value} if kind is dict else kind([value])
    return value


@pytest.mark.parametrize("kind", [list, dict])
def test_nesting_up_to_the_limit_is_exact(kind: type) -> None:
    value = nested(kind, DEPTH_MAX)
    assert decode(loads(text_of(value))) == value


@pytest.mark.parametrize("kind", [list, dict, tuple])
def test_nesting_beyond_the_limit_is_refused(kind: type) -> None:
    with pytest.raises(df.EncodeError, match="nested"):
        encode(nested(kind, DEPTH_MAX + 1))


def test_a_cycle_is_refused() -> None:
    ring: list[Any] = []
    ring.append(ring)
    with pytest.raises(df.EncodeError, match="nested"):
        encode(ring)


def test_a_tree_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepfreeze.state.encoder.TEXT_BYTES_MAX", 1000)
    assert text_of(["x" * 996])
    for text in ("x" * 997, "\u20ac" * 333):  # bytes count, not characters
        with pytest.raises(df.EncodeError, match="more than 1000"):
            text_of([text])


def test_names_escape_what_would_be_ambiguous() -> None:
    assert [component(key) for key in ("a.b", "", "a..b", "%", "~2", 3, (1, 2), None)] == [
        "a.b", "%", "a.%.b", "%25", "%7E2", "3", "(1, 2)", "None",
    ]  # fmt: skip
    assert join("", "a") == "a"
    assert join("a", 0) == "a.0"


def test_keys_that_collide_get_a_suffix() -> None:
    keys = KeyTable()
    taken = [keys.take(path) for path in ("a.b", "a.b", "a.b", "@x", "__metadata__")]
    assert taken == ["a.b", "a.b~2", "a.b~3", "%40x", "%5F_metadata__"]


def test_patterns_choose_places_and_whole_objects() -> None:
    keys = KeyFilter(["model.*", "sched"])
    assert keys.wants("model.a.b")
    assert keys.wants("sched")
    assert not keys.wants("optim.a")
    assert keys.wants_whole("model")
    with pytest.raises(TypeError):
        KeyFilter("model.*")


def test_pruning_keeps_places_in_lists() -> None:
    node = encode({"a": [1, 2, 3], "b": {"c": 1, "d": (4, 5)}, "e": 0})
    assert decode(pruned(node, "", KeyFilter(["a.1", "b.d.0"]))) == {
        "a": [None, 2, None],
        "b": {"d": (4, None)},
    }
    assert pruned(node, "", KeyFilter(["nothing"])) == {}


def test_a_registered_type_goes_through_its_functions(ckpt: df.Checkpointer) -> None:
    df.register_type(Colour, "test.colour", int, Colour)
    state = {"c": Colour.RED, "d": deque([1, 2], maxlen=5), "e": bytearray(b"abc")}
    handle = ckpt.save(1, state)
    assert handle is not None
    handle.wait()
    loaded = ckpt.load()
    assert same(loaded, state)
    with pytest.raises(ValueError, match="already stands for"):
        df.register_type(Listy, "test.colour", list, Listy)


def test_a_place_is_only_passed_over_if_nothing_in_it_is_chosen() -> None:
    """Every path and pattern of few letters, wildcards at each place."""
    names = ["a", "b", "ab"]
    paths = [".".join(each) for n in (1, 2, 3) for each in itertools.product(names, repeat=n)]
    parts = ["a", "b", "a*", "?", "[ab]", "*b", "a[b]"]
    patterns = [".".join(each) for n in (1, 2, 3) for each in itertools.product(parts, repeat=n)]
    passed_over = 0
    for pattern in [*patterns, "*", "a.*", "*.b", "a.", ""]:
        keys = KeyFilter([pattern])
        chosen = [path for path in paths if keys.wants_whole(path)]
        for path in paths:
            if any(each == path or each.startswith(f"{path}.") for each in chosen):
                assert keys.may_want_within(path), (pattern, path)
            passed_over += not keys.may_want_within(path)
    assert passed_over > len(patterns)
    assert KeyFilter(None).may_want_within("a")
    assert not KeyFilter([]).may_want_within("a")
