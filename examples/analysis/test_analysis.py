"""The examples find the results of their papers, on a run whose wrong labels are known."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import deepfreeze as df
from deepfreeze.exploring import analyses
from examples.analysis import cka, tracin
from examples.analysis.digits import EVERY, STEPS, Digits, digits, network, train

pytestmark = pytest.mark.filterwarnings("ignore:Input Tensor .* required_grads:UserWarning")


@pytest.fixture(scope="module")
def data() -> Digits:
    return digits()


@pytest.fixture(scope="module")
def run(data: Digits, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("digits") / "run", data)


@pytest.fixture(scope="module")
def influence(run: Path, data: Digits) -> Tensor:
    steps, found = tracin.self_influence(run, data)
    assert steps == list(range(EVERY, STEPS + 1, EVERY))
    return found


def test_wrong_labels_are_found_far_above_chance(data: Digits, influence: Tensor) -> None:
    chance = tracin.precision(list(range(len(data.labels))), data)
    assert chance == 0.1
    assert tracin.precision(tracin.suspects(influence, 50), data) >= 0.9
    assert tracin.precision(tracin.suspects(influence, 100), data) >= 0.8


def test_the_influence_is_the_papers_formula(run: Path, data: Digits, influence: Tensor) -> None:
    model = network()
    for column, each in enumerate(df.checkpoints(run)):
        values = each.load()
        model.load_state_dict(values["model"])
        rate = values["schedule"]["_last_lr"][0]
        for row in (0, 17, tracin.suspects(influence, 1)[0]):
            loss = nn.functional.cross_entropy(model(data.images[row]), data.labels[row])
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            expected = rate * sum(float(part.square().sum()) for part in gradients)
            assert float(influence[row, column]) == pytest.approx(expected, rel=1e-3, abs=1e-8)


def test_cka_is_the_papers_formula() -> None:
    torch.manual_seed(1)
    x, y = torch.randn(40, 5), torch.randn(40, 7)
    centre = torch.eye(40) - 1 / 40  # by kernels, as equations 1 to 3 have it

    def hsic(one: Tensor, other: Tensor) -> float:
        return float(torch.trace(one @ one.T @ centre @ other @ other.T @ centre))

    expected = hsic(x, y) / (hsic(x, x) * hsic(y, y)) ** 0.5
    assert cka.linear_cka(x, y) == pytest.approx(expected, rel=1e-4)
    assert cka.linear_cka(x, x) == pytest.approx(1)
    rotation = torch.linalg.qr(torch.randn(5, 5)).Q
    assert cka.linear_cka(x, 3 * x @ rotation + 2) == pytest.approx(1, abs=1e-5)


def test_steps_are_the_less_alike_the_farther_apart(run: Path, data: Digits) -> None:
    steps, values = cka.between_steps(run, data)
    found = torch.tensor(values)
    assert torch.allclose(found.diagonal(), torch.ones(len(steps)))
    assert torch.allclose(found, found.T)
    assert found[0].tolist() == sorted(found[0].tolist(), reverse=True)
    assert float(found[0, -1]) < 0.95


def test_the_page_can_draw_both(run: Path, data: Digits, influence: Tensor) -> None:
    steps, values = cka.between_steps(run, data)
    cka.write(run, steps, values)
    tracin.write(run, data, steps, influence)
    listed = analyses.listed(run)
    assert [(each["name"], each["fault"]) for each in listed] == [("cka", ""), ("tracin", "")]
    assert analyses.read(run, "cka")["values"] == values
    drawn = analyses.read(run, "tracin")
    assert drawn["columns"]["names"] == [str(step) for step in steps]
    first = tracin.suspects(influence, 1)[0]
    assert drawn["rows"]["names"][0] == f"{first}, labelled {int(data.labels[first])}"
