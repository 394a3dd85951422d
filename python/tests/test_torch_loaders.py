"""Modules that load by themselves, beside torch's own load_state_dict() of the same state."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.ao.nn.quantized.dynamic
from testkit import assert_same, bits, save
from torch import nn
from torch.ao.nn import quantized
from torch.ao.nn.intrinsic import qat
from torch.ao.quantization import fake_quantize, observer
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn.utils import parametrizations, prune, spectral_norm, weight_norm
from torch.nn.utils.parametrizations import orthogonal
from torch.optim.swa_utils import AveragedModel

import deepfreeze as df
from deepfreeze.frameworks.torch.modules import canonical_names, live_versions

Make = Callable[[int], nn.Module]  # of a size


def seen(module: nn.Module, *shape: int) -> nn.Module:
    """After one forward pass, in which observers and lazy modules take their form."""
    with torch.no_grad():
        module(torch.randn(*shape))
    return module


def observed(kind: Any, size: int, **options: Any) -> nn.Module:
    return seen(kind(**options), size, 4)


def masked(size: int) -> nn.Module:
    pruned: nn.Module = prune.l1_unstructured(nn.Linear(size, 3), "weight", 0.5)
    return pruned


def conv_bn(size: int) -> nn.Module:
    return qat.ConvBn1d(2, size, 1, qconfig=torch.ao.quantization.get_default_qat_qconfig())


def symbolic(size: int) -> nn.Module:
    return torch.fx.symbolic_trace(nn.Sequential(nn.Linear(size, 2), nn.ReLU()))


STOCK: dict[str, Make] = {
    "BatchNorm1d": nn.BatchNorm1d,
    "BatchNorm2d": nn.BatchNorm2d,
    "BatchNorm3d": nn.BatchNorm3d,
    "SyncBatchNorm": nn.SyncBatchNorm,
    "InstanceNorm1d": lambda n: nn.InstanceNorm1d(n, affine=True, track_running_stats=True),
    "MultiheadAttention": lambda n: nn.MultiheadAttention(2 * n, 2),
    "LSTM": lambda n: nn.LSTM(n, 3),
    "EmbeddingBag": lambda n: nn.EmbeddingBag(n, 3),
    "ParameterList": lambda n: nn.ParameterList([torch.randn(n), torch.randn(2)]),
    "parametrized weight_norm": lambda n: parametrizations.weight_norm(nn.Linear(n, 3)),
    "parametrized spectral_norm": lambda n: parametrizations.spectral_norm(nn.Linear(n, 3)),
    "parametrized orthogonal": lambda n: orthogonal(nn.Linear(n, 3)),
    "weight_norm": lambda n: weight_norm(nn.Linear(n, 3)),
    "spectral_norm": lambda n: spectral_norm(nn.Linear(n, 3)),
    "pruned": masked,
    "MinMaxObserver": lambda n: observed(observer.MinMaxObserver, n),
    "PerChannelMinMaxObserver": lambda n: observed(observer.PerChannelMinMaxObserver, n),
    "MovingAveragePerChannel": lambda n: observed(
        observer.MovingAveragePerChannelMinMaxObserver, n
    ),
    "HistogramObserver": lambda n: observed(observer.HistogramObserver, n, bins=16),
    "FakeQuantize": lambda n: observed(fake_quantize.default_weight_fake_quant, n),
    "FakeQuantize per channel": lambda n: observed(
        fake_quantize.default_per_channel_weight_fake_quant, n
    ),
    "qat ConvBn1d": conv_bn,
    "quantized Linear": lambda n: quantized.Linear(n, 3),
    "quantized Conv1d": lambda n: quantized.Conv1d(n, 3, 1),
    "QFunctional": lambda n: quantized.QFunctional(),
    "dynamic Linear": lambda n: quantized.dynamic.Linear(n, 3),
    "quantized Embedding": lambda n: quantized.Embedding(n, 12),
    "AveragedModel": lambda n: AveragedModel(nn.BatchNorm1d(n)),
    "GraphModule": symbolic,
    "LazyLinear": lambda n: seen(nn.LazyLinear(3), 2, n),
    "LazyConv1d": lambda n: seen(nn.LazyConv1d(3, 1), 2, n, 4),
    "LazyConv2d": lambda n: seen(nn.LazyConv2d(3, 1), 2, n, 4, 4),
    "LazyConv3d": lambda n: seen(nn.LazyConv3d(3, 1), 2, n, 4, 4, 4),
    "LazyConvTranspose1d": lambda n: seen(nn.LazyConvTranspose1d(3, 1), 2, n, 4),
    "LazyConvTranspose2d": lambda n: seen(nn.LazyConvTranspose2d(3, 1), 2, n, 4, 4),
    "LazyConvTranspose3d": lambda n: seen(nn.LazyConvTranspose3d(3, 1), 2, n, 4, 4, 4),
    "LazyBatchNorm1d": lambda n: seen(nn.LazyBatchNorm1d(), 2, n),
    "LazyBatchNorm2d": lambda n: seen(nn.LazyBatchNorm2d(), 2, n, 4, 4),
    "LazyBatchNorm3d": lambda n: seen(nn.LazyBatchNorm3d(), 2, n, 4, 4, 4),
    "LazyInstanceNorm1d": lambda n: seen(
        nn.LazyInstanceNorm1d(affine=True, track_running_stats=True), 2, n, 4
    ),
    "LazyInstanceNorm2d": lambda n: seen(
        nn.LazyInstanceNorm2d(affine=True, track_running_stats=True), 2, n, 4, 4
    ),
    "LazyInstanceNorm3d": lambda n: seen(
        nn.LazyInstanceNorm3d(affine=True, track_running_stats=True), 2, n, 4, 4, 4
    ),
}
FRESH: dict[str, Callable[[], nn.Module]] = {
    **{
        name: getattr(nn, name)
        for name in STOCK
        if name.startswith(("LazyBatchNorm", "LazyInstanceNorm"))
    },
    **{
        name: lambda name=name: getattr(nn, name)(*(3,) if "Linear" in name else (3, 1))
        for name in STOCK
        if name.startswith(("LazyLinear", "LazyConv"))
    },
    "PerChannelMinMaxObserver": observer.PerChannelMinMaxObserver,
    "MovingAveragePerChannel": observer.MovingAveragePerChannelMinMaxObserver,
    "HistogramObserver": lambda: observer.HistogramObserver(bins=16),
    "FakeQuantize per channel": fake_quantize.default_per_channel_weight_fake_quant,
}
# Classes of torch with a loader of their own, which a case above has as a base or within it.
WITHIN = {
    "_NormBase": "BatchNorm1d",
    "_InstanceNorm": "InstanceNorm1d",
    "UniformQuantizationObserverBase": "MinMaxObserver",
    "FakeQuantize": "FakeQuantize",
    "HistogramObserver": "HistogramObserver",
    "PerChannelMinMaxObserver": "PerChannelMinMaxObserver",
    "Linear": "quantized Linear",
    "LinearPackedParams": "quantized Linear",
    "_ConvNd": "quantized Conv1d",
    "EmbeddingPackedParams": "quantized Embedding",
    "QFunctional": "QFunctional",
    "_ConvBnNd": "qat ConvBn1d",
}
# torch.save() stores these by pickling objects of torch's own C++ classes; save() refuses them.
PICKLED = {
    "PackedParameter": lambda: quantized.dynamic.LSTM(2, 2),
    "RNNBase": lambda: quantized.dynamic.LSTM(2, 2),
    "RNNCellBase": lambda: quantized.dynamic.LSTMCell(2, 2),
}


def loaders_of_torch(kind: type[nn.Module]) -> set[str]:
    is_loader = kind.__module__[:6] == "torch." and "_load_from_state_dict" in vars(kind)
    found = {kind.__name__} if is_loader else set()
    return found.union(*map(loaders_of_torch, kind.__subclasses__()))


def test_no_loader_of_torch_is_left_out() -> None:
    of_torch = [kind for kind in nn.Module.__subclasses__() if kind.__module__[:6] == "torch."]
    known = {*WITHIN, *PICKLED, "QuantizedGraphModule", "ReferenceQuantizedModule"}
    assert set[str]().union(*map(loaders_of_torch, of_torch)) <= known
    assert set(WITHIN.values()) <= STOCK.keys()


@pytest.mark.parametrize("make", PICKLED.values())
def test_what_only_a_pickle_can_hold_is_refused(ckpt: df.Checkpointer, make: Any) -> None:
    with pytest.raises(df.EncodeError, match=r"m\._(all_weight|packed_weight)"):
        ckpt.save(1, {"m": make()})


def test_no_lazy_module_of_torch_is_left_out() -> None:
    assert {name for name in dir(nn) if name.startswith("Lazy")} == {
        name for name in STOCK if name.startswith("Lazy")
    }


def holder(name: str, module: nn.Module) -> nn.Module:
    return nn.ModuleDict({name: module, "plain": nn.Linear(2, 2)})


def flat(state: Any, path: str = "") -> dict[str, Any]:
    if isinstance(state, torch.Tensor) and not torch.nn.parameter.is_lazy(state):
        plain = state.dequantize() if state.is_quantized else state
        return {path: (state.dtype, tuple(state.shape), bits(plain))}
    if isinstance(state, dict):
        return {k: v for key, item in state.items() for k, v in flat(item, f"{path}.{key}").items()}
    if isinstance(state, (tuple, list)):
        return flat(dict(enumerate(state)), path)
    return {path: type(state) if isinstance(state, torch.Tensor) else state}


def by_torch(module: nn.Module, state: Any, *, strict: bool) -> tuple[Any, Any, list[str]] | None:
    """torch's own load: the state, and the names that are missing and unexpected."""
    try:
        result = module.load_state_dict(copy.deepcopy(state), strict=strict)
    except (KeyError, RuntimeError):
        return None
    return flat(module.state_dict()), result.missing_keys, result.unexpected_keys


def make_live(name: str, change: str) -> nn.Module:
    torch.manual_seed(2)
    if change == "fresh":
        return holder("a", FRESH[name]())
    return holder("b" if change == "renamed" else "a", STOCK[name](6 if change == "resized" else 4))


CASES = [(name, change) for name in STOCK for change in ("own", "renamed", "resized")]
CASES += [(name, "fresh") for name in FRESH]


@pytest.mark.parametrize(("name", "change"), CASES)
def test_a_module_takes_what_torch_takes(ckpt: df.Checkpointer, name: str, change: str) -> None:
    torch.manual_seed(1)
    stored = holder("a", STOCK[name](4))
    save(ckpt, 1, {"m": stored})
    for strict in (True, False):
        expected = by_torch(make_live(name, change), stored.state_dict(), strict=strict)
        live = make_live(name, change)
        before = flat(live.state_dict())
        if expected is None and strict:
            with pytest.raises(df.MismatchError, match=r"m\.|missing|not in the state") as caught:
                ckpt.restore({"m": live})
            assert not caught.value.state_modified
            assert flat(live.state_dict()) == before
            continue
        ckpt.restore({"m": live}, strict=strict)
        report = ckpt.last_restore
        assert report is not None
        if expected is not None:
            state, missing, unexpected = expected
            assert flat(live.state_dict()) == state
            # torch takes a name that is missing for good if no version was stored for its module.
            names = {f"m.{key}" for key in missing if f".{key}" in before}
            assert names <= set(report.missing)
            assert sorted(report.unexpected) == sorted(f"m.{key}" for key in unexpected)
            continue
        # torch raises without strict, too: each name is restored, or reported and as it was.
        there = flat(stored.state_dict())
        reported = {*report.missing, *report.mismatched}
        for key, value in flat(live.state_dict()).items():
            if any(f"m{key}".startswith(place) for place in reported):
                assert value == before[key], key
            else:
                assert value == there[key], key


class Queue(nn.Module):
    """Its own loader takes the stored size."""

    def __init__(self, size: int = 0) -> None:
        super().__init__()
        self.register_buffer("q", torch.ones(size, 2))
        self.calls = 0

    def _load_from_state_dict(self, state: Any, prefix: str, *rest: Any) -> None:
        self.calls += 1
        self.q = torch.zeros_like(state[prefix + "q"])
        super()._load_from_state_dict(state, prefix, *rest)


class Old(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)


class New(nn.Module):
    """Renamed since; a hook takes old checkpoints."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(2, 2)
        self.register_load_state_dict_pre_hook(New._from_old)

    def _from_old(self, state: Any, prefix: str, *_: Any) -> None:
        for key in [key for key in state if key.startswith(f"{prefix}fc.")]:
            state[key.replace("fc.", "head.")] = state.pop(key)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("wrap", [lambda m: m, nn.Sequential, nn.DataParallel])
def test_a_loader_takes_the_stored_size(
    ckpt: df.Checkpointer, wrap: Callable[[Any], nn.Module], strict: bool
) -> None:
    stored, live = wrap(Queue(3)), wrap(Queue())
    save(ckpt, 1, {"m": stored, "rest": torch.ones(2)})
    rest = torch.zeros(2)
    ckpt.restore({"m": live, "rest": rest}, strict=strict)
    (there,), (here,) = stored.buffers(), live.buffers()
    assert_same(here, there)
    assert rest.tolist() == [1, 1]


@pytest.mark.parametrize("strict", [True, False])
def test_a_hook_renames(ckpt: df.Checkpointer, strict: bool) -> None:
    stored, live = nn.Sequential(Old(), nn.Linear(2, 2)), nn.Sequential(New(), nn.Linear(2, 2))
    save(ckpt, 1, {"m": stored})
    parameters = [id(parameter) for parameter in live.parameters()]
    ckpt.restore({"m": live}, strict=strict)
    for here, there in zip(live.parameters(), stored.parameters(), strict=True):
        assert_same(here, there)
    assert [id(parameter) for parameter in live.parameters()] == parameters


class Forgiving(nn.Module):
    """Makes missing values anew, and reports them by a hook after loading."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.register_buffer("cache", torch.ones(2))
        self.register_load_state_dict_post_hook(lambda _, left: left.missing_keys.clear())


def test_a_hook_after_loading_may_forgive_what_is_missing(ckpt: df.Checkpointer) -> None:
    stored, live = Old(), Forgiving()
    save(ckpt, 1, {"m": stored})
    ckpt.restore({"m": live})
    assert_same(live.fc.weight, stored.fc.weight)
    assert live.cache.tolist() == [1, 1]


def test_what_is_left_is_named_and_the_module_is_as_it_was(ckpt: df.Checkpointer) -> None:
    stored = nn.Sequential(Old(), Queue(3))
    stored[0].more = nn.Linear(1, 1)  # type: ignore[assignment]
    save(ckpt, 1, {"first": torch.ones(2), "m": stored})
    live = nn.Sequential(New(), Queue())
    queue, first = live[1].q, torch.zeros(2)
    before = copy.deepcopy(live.state_dict())
    with pytest.raises(df.MismatchError, match=r"not in the state: .*m\.0\.more\.") as caught:
        ckpt.restore({"first": first, "m": live})
    assert not caught.value.state_modified
    assert first.tolist() == [0, 0]
    assert live[1].q is queue
    assert live[1].calls == 0
    for name, value in live.state_dict().items():
        assert_same(value, before[name])
    ckpt.restore({"first": first, "m": live}, strict=False)
    assert ckpt.last_restore is not None
    assert ckpt.last_restore.unexpected == ["m.0.more.weight", "m.0.more.bias"]
    assert_same(live[0].head.weight, stored[0].fc.weight)
    assert_same(live[1].q, stored[1].q)


def test_another_dtype_is_never_cast_silently(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"m": Old()})
    live = New().bfloat16()
    before = copy.deepcopy(live.state_dict())
    with pytest.raises(df.MismatchError, match=r"m\.fc\.weight: stored float32.*bfloat16"):
        ckpt.restore({"m": live})
    for name, value in live.state_dict().items():
        assert_same(value, before[name])


class Refusing(Queue):
    def _load_from_state_dict(self, *_: Any) -> None:
        self.q = torch.zeros(9)
        raise ValueError("not of mine")


def test_a_loader_that_fails_has_changed_nothing(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"m": Queue(3), "n": 1})
    state = {"m": Refusing(), "n": 0}
    queue = state["m"].q  # type: ignore[attr-defined]
    with pytest.raises(df.MismatchError, match=r"m: Refusing can't load .* not of mine") as caught:
        ckpt.restore(state)
    assert not caught.value.state_modified
    assert state["m"].q is queue  # type: ignore[attr-defined]
    ckpt.restore(state, strict=False)
    assert ckpt.last_restore is not None
    assert "not of mine" in ckpt.last_restore.mismatched["m"]
    assert state["m"].q is queue  # type: ignore[attr-defined]
    assert state["n"] == 1


class OwnLoad(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("x", torch.ones(size))

    def load_state_dict(self, state: Any) -> None:  # type: ignore[override]
        self.x = state["x"].clone()


def test_a_load_state_dict_of_its_own_is_asked(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"m": OwnLoad(3)})
    for strict in (True, False):
        live = OwnLoad(1)
        ckpt.restore({"m": live}, strict=strict)
        assert live.x.tolist() == [1, 1, 1]


def test_a_damaged_file_leaves_the_asked_module_as_it_was(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The read into live memory, after the module was asked, fails."""
    save(ckpt, 1, {"m": Queue(3), "x": torch.ones(2)})
    live = {"m": Queue(), "x": torch.zeros(2)}
    queue = live["m"].q  # type: ignore[union-attr]
    from deepfreeze.restoring import plan

    real, reads = plan.Plan.read, []

    def read(self: Any, *, verify: bool) -> None:
        reads.append(len(reads))
        if len(reads) == 2:
            raise df.CorruptError("a block")
        real(self, verify=verify)

    monkeypatch.setattr(plan.Plan, "read", read)
    with pytest.raises(df.CorruptError):
        ckpt.restore(live)
    assert live["m"].q is queue  # type: ignore[union-attr]


def test_the_optimizer_of_a_lazy_module_comes_back(ckpt: df.Checkpointer) -> None:
    stored = seen(nn.LazyLinear(3), 2, 4)
    optimizer = torch.optim.Adam(stored.parameters())
    stored(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    save(ckpt, 1, {"m": stored, "o": optimizer})
    live = nn.LazyLinear(3)
    other = torch.optim.Adam(live.parameters())
    ckpt.restore({"m": live, "o": other})
    assert_same(other.state[live.weight]["exp_avg"], optimizer.state[stored.weight]["exp_avg"])


class Turned(nn.Linear):
    """Its second version keeps its weight transposed, and takes that of the first."""

    _version = 2

    def _load_from_state_dict(self, state: Any, prefix: str, local: Any, *rest: Any) -> None:
        self.seen = local.get("version")
        if self.seen == 1:
            state[prefix + "weight"] = state[prefix + "weight"].t()
        super()._load_from_state_dict(state, prefix, local, *rest)


class Unturned(nn.Linear):
    """As Turned was before."""


def beside(module: nn.Module) -> nn.Module:
    """A module within another, beside one with a loader of the same version as it was stored."""
    return nn.Sequential(nn.ModuleDict({"a": module}), Queue(2))


@pytest.mark.parametrize("wrap", [lambda m: m, beside, checkpoint_wrapper, nn.DataParallel])
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("kind", [Unturned, Turned])
def test_a_loader_is_told_which_version_has_stored(
    ckpt: df.Checkpointer, wrap: Any, kind: Any, strict: bool
) -> None:
    stored, live, by_torch = kind(2, 2), Turned(2, 2), Turned(2, 2)
    by_torch.load_state_dict(stored.state_dict())
    save(ckpt, 1, {"m": wrap(stored)})
    ckpt.restore({"m": wrap(live)}, strict=strict)
    assert_same(live.weight, by_torch.weight)
    assert ckpt.last_restore is not None
    assert not ckpt.last_restore.mismatched


@pytest.mark.parametrize("wrap", [lambda m: m, beside, checkpoint_wrapper])
def test_a_loader_that_is_not_asked_is_told_the_version_too(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch, wrap: Any
) -> None:
    """Modules with shards are the same: their values are filled before they are loaded."""
    stored, live = Unturned(2, 2), Turned(2, 2)
    monkeypatch.setattr("deepfreeze.frameworks.torch.module_match.may_be_asked", lambda _: False)
    save(ckpt, 1, {"m": wrap(stored)})
    ckpt.restore({"m": wrap(live)})
    assert_same(live.weight, stored.weight.t())


def test_a_part_of_a_module_of_another_version_is_refused(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"m": nn.ModuleList([Unturned(2, 2), Old(), Queue(2)])})
    live = nn.ModuleList([Turned(2, 2), Old(), Queue(2)])
    before = copy.deepcopy(live[0].state_dict())
    with pytest.raises(df.MismatchError, match=r"m\.0: stored by another version of its class"):
        ckpt.restore({"m": live}, keys=["m.0.weight"])
    for keys, strict in ((["m.0.weight"], False), (["m.1.*"], True)):
        ckpt.restore({"m": live}, keys=keys, strict=strict)
        for name, value in live[0].state_dict().items():
            assert_same(value, before[name])


def test_a_checkpoint_without_versions_is_of_the_live_ones(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As version 0.1 wrote them."""
    stored, live = Turned(2, 2), Turned(2, 2)
    with monkeypatch.context() as patch:
        patch.setattr("deepfreeze.frameworks.torch.modules.live_versions", lambda *_: None)
        save(ckpt, 1, {"m": stored})
    ckpt.restore({"m": live})
    assert_same(live.weight, stored.weight)
    assert live.seen == 2


def test_only_versions_that_say_something_are_stored() -> None:
    model = nn.Sequential(nn.Linear(1, 1), checkpoint_wrapper(Turned(1, 1)), nn.BatchNorm1d(1))
    found = live_versions(model.state_dict(), canonical_names(model))
    assert {name: each for name, each in (found or {}).items() if each != 1} == {"1": 2, "2": 2}
