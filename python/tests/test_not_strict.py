"""restore(strict=False) restores values that fit; all others stay unchanged and are reported."""

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from testkit import assert_same, save
from torch import nn

import deepfreeze as df


def report(ckpt: df.Checkpointer) -> df.RestoreReport:
    assert ckpt.last_restore is not None
    return ckpt.last_restore


def trained(vocabulary: int, order: str, *, steps: int, half: bool = False) -> dict[str, Any]:
    """A model and its Adam, in the order that the state names them."""
    torch.manual_seed(vocabulary + steps)
    model = nn.Sequential(nn.Embedding(vocabulary, 4), nn.Linear(4, 4))
    if half:
        model[0].half()
    optim = torch.optim.Adam(model.parameters(), lr=0.001 * vocabulary)
    for _ in range(steps):
        optim.zero_grad()
        model[1](model[0](torch.tensor([1, 2])).float()).sum().backward()
        optim.step()
    state: dict[str, Any] = {"model": model, "optim": optim, "step": steps}
    return {name: state[name] for name in order.split()}


@pytest.mark.parametrize("order", ["model optim step", "optim step model"])
@pytest.mark.parametrize("half", [False, True], ids=["resized", "another dtype"])
@pytest.mark.parametrize("steps", [0, 2], ids=["fresh optimizer", "used optimizer"])
def test_a_new_vocabulary(
    ckpt: df.Checkpointer, caplog: pytest.LogCaptureFixture, order: str, half: bool, steps: int
) -> None:
    stored = trained(10, order, steps=3)
    save(ckpt, 1, stored)
    live = trained(10 if half else 12, order, steps=steps, half=half)
    embedding, body = live["model"][0].weight, live["model"][1].weight
    before = embedding.detach().clone()
    kept = {key: value.clone() for key, value in live["optim"].state.get(embedding, {}).items()}
    with pytest.raises(df.MismatchError, match=r"model\.0\.weight: stored float32\[10, 4\], live"):
        ckpt.restore(live)
    with caplog.at_level(logging.WARNING, "deepfreeze"):
        assert ckpt.restore(live, strict=False) == 1

    assert_same(embedding, before)
    assert_same(body, stored["model"][1].weight)
    assert live["step"] == 3
    of_embedding = live["optim"].state.get(embedding, {})
    assert of_embedding.keys() == kept.keys()
    for key, value in kept.items():
        assert_same(of_embedding[key], value)
    for key, value in stored["optim"].state[stored["model"][1].weight].items():
        assert_same(live["optim"].state[body][key], value)
    assert live["optim"].param_groups[0]["lr"] == 0.01
    assert set(report(ckpt).mismatched) == {"model.0.weight", "optim.state.0.weight"}
    assert "2 live names stay as they were (" in caplog.text
    assert "model.0.weight" in caplog.text
    save(ckpt, 2, live)  # nothing is half restored


def test_a_whole_restore_warns_of_nothing(
    ckpt: df.Checkpointer, caplog: pytest.LogCaptureFixture
) -> None:
    save(ckpt, 1, {"a": torch.ones(1)})
    ckpt.restore({"a": torch.zeros(1)}, strict=False)
    assert not caplog.records
    assert report(ckpt).mismatched == {}


def test_of_weights_that_are_tied_only_here_the_first_counts(ckpt: df.Checkpointer) -> None:
    def made(*, tied: bool) -> dict[str, Any]:
        model = nn.ModuleDict({"emb": nn.Embedding(3, 2), "out": nn.Linear(2, 3, bias=False)})
        if tied:
            model["out"].weight = model["emb"].weight
        optim = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        sum(each.sum() for each in model.parameters()).backward()  # type: ignore[union-attr]
        optim.step()
        return {"model": model, "optim": optim}

    stored, live = made(tied=False), made(tied=True)
    save(ckpt, 1, stored)
    ckpt.restore(live, strict=False)
    assert_same(live["model"]["emb"].weight, stored["model"]["emb"].weight)
    assert "shares its memory with model.emb" in report(ckpt).mismatched["model.out.weight"]
    (momentum,) = live["optim"].state.values()
    of_embedding = stored["optim"].state[stored["model"]["emb"].weight]
    assert_same(momentum["momentum_buffer"], of_embedding["momentum_buffer"])


def test_places_that_overlap_in_a_chain(ckpt: df.Checkpointer) -> None:
    memory = torch.zeros(6)
    parts = {name: memory[begin : begin + 3] for name, begin in (("a", 0), ("b", 2), ("c", 4))}
    save(ckpt, 1, {name: torch.full((3 if name != "c" else 2,), 1.0) for name in parts})
    ckpt.restore(parts, strict=False)
    left = report(ckpt).mismatched
    assert "b" in left
    assert memory[:3].tolist() == [1, 1, 1]
    assert memory[3].item() == 0


@pytest.mark.parametrize(
    ("stored", "live"),
    [
        ([torch.ones(1)], {"x": torch.zeros(1)}),
        ({"x": torch.ones(1)}, [torch.zeros(1)]),
        ((torch.ones(1), torch.ones(1)), (torch.zeros(1),)),
        (torch.ones(2), torch.eye(2).to_sparse()),
        (torch.optim.SGD([torch.ones(1)]), nn.Linear(1, 1)),
        (df.RNG(), {"x": torch.zeros(1)}),
        (np.ones(2, dtype="datetime64[D]"), np.zeros(2)),
        (1.0, torch.zeros(2)),
        ("text", torch.zeros(())),
        (torch.ones(2), 1.0),
        (nn.Linear(1, 1), 1),
        (None, torch.zeros(1)),
        ({"deep": {"x": torch.ones(1)}}, {"deep": torch.zeros(1)}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_another_kind_stays_and_the_rest_is_restored(
    ckpt: df.Checkpointer, stored: Any, live: Any
) -> None:
    save(ckpt, 1, {"it": stored, "w": torch.ones(2)})
    before = repr(live)
    state = {"it": live, "w": torch.zeros(2)}
    with pytest.raises(df.MismatchError, match=r"^it"):
        ckpt.restore(state)
    assert ckpt.restore(state, strict=False) == 1
    assert state["it"] is live
    assert repr(live) == before
    assert state["w"].tolist() == [1, 1]
    (name,) = report(ckpt).mismatched
    assert name.startswith("it")
    save(ckpt, 2, state)


class Refuses:
    """An object whose load fails once."""

    fails = True

    def state_dict(self) -> dict[str, int]:
        return {"x": 1}

    def load_state_dict(self, state: dict[str, int]) -> None:
        if self.fails:
            self.fails = False
            raise RuntimeError("on purpose")


def test_a_half_restored_state_is_whole_only_if_all_that_was_touched_is(run: Path) -> None:
    with df.Checkpointer(run) as ckpt:
        save(ckpt, 1, {"a": torch.ones(2), "b": torch.ones(3), "f": Refuses()})
        save(ckpt, 2, {"a": torch.ones(2), "b": torch.ones(2), "f": Refuses()})
        live: dict[str, Any] = {"a": torch.zeros(2), "b": torch.zeros(2), "f": Refuses()}
        with pytest.raises(df.CheckpointError, match="on purpose"):
            ckpt.restore(live, step=2)
        ckpt.restore(live, step=1, strict=False)
        assert [*report(ckpt).mismatched] == ["b"]
        with pytest.raises(df.CheckpointError, match="half restored"):
            ckpt.save(3, live)
        ckpt.restore(live, step=2, strict=False)
        save(ckpt, 3, live)


def test_each_option_of_an_optimizer_counts_as_touched(ckpt: df.Checkpointer) -> None:
    optimizer = torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1)
    save(ckpt, 1, {"o": optimizer, "f": Refuses()})
    live = {"o": optimizer, "f": Refuses()}
    with pytest.raises(df.CheckpointError, match="on purpose"):
        ckpt.restore(live, keys=["o.param_groups.*", "f"])
    ckpt.restore(live, keys=["o.param_groups.0.lr", "f"])
    with pytest.raises(df.CheckpointError, match="half restored"):
        ckpt.save(2, live)
    ckpt.restore(live, keys=["o.param_groups.*", "f"])
    save(ckpt, 2, live)


def test_each_rank_reports_what_it_left_alone(tmp_path: Path) -> None:
    run, place = tmp_path / "run", tmp_path / "ranks"

    def work(rank: int) -> tuple[list[float], dict[str, str], list[str]]:
        ranks = df.DirectoryRanks(place, rank=rank, world_size=2, timeout_seconds=60)
        with df.Checkpointer(run, ranks=ranks) as ckpt:
            state = {"w": torch.ones(2), "own": df.per_rank(torch.ones(2)), "n": 1}
            save(ckpt, 1, state)
            own = df.per_rank(torch.zeros(2 + rank))
            more = {"new": 0} if rank == 0 else {}
            live: dict[str, Any] = {"w": torch.zeros(2), "own": own, "n": 0, **more}
            assert ckpt.restore(live, strict=False) == 1
            assert live["n"] == 1
            assert own.value.sum().item() == (2 if rank == 0 else 0)
            found = report(ckpt)
            with pytest.raises(df.MismatchError):  # on both, whichever rank it is that differs
                ckpt.restore(live)
            return live["w"].tolist(), found.mismatched, found.missing

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(work, range(2))
    assert first == ([1, 1], {}, ["new"])
    assert second == ([1, 1], {"own": "stored float32[2], live float32[3]"}, [])


def test_a_state_of_another_kind_is_refused_even_so(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"a": 1})
    with pytest.raises(df.MismatchError, match=r"the state is a list of 1, the checkpoint holds a"):
        ckpt.restore([1], strict=False)
