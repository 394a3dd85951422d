"""The study's networks in four frameworks: some pairs, and a map that is wrong."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["KERAS_BACKEND"] = "tensorflow"
pytest.importorskip("orbax", reason="of build/frameworks-venv")

from lab.experiments import portability as experiment
from lab.measure import run as study_run
from lab.measure.case import Plan
from lab.measure.program import Environments
from lab.networks.portable import NETWORKS, Torch
from lab.programs import portability
from lab.programs.portability import ARRAYS, BY_DEEPFREEZE, BY_ITSELF, EQUAL, NO_READER
from lab.programs.portability_files import CONTAINERS
from lab.tests.conftest import one_thread  # noqa: F401 (a fixture that is used by itself)
from lab.writers.menu import ROOT

EXPORTER = ROOT / ".venv" / "bin" / "deepfreeze"
SOME = ("torch-save", "keras-weights", "chainer-hdf5", "df-jax")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    place = tmp_path_factory.mktemp("portability")
    some = tuple(one for one in CONTAINERS if one.name in SOME)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(portability, "CONTAINERS", some)
        made = portability.Portability(5, place, str(EXPORTER))
        return list(made.results())


def verdicts(pairs: list[dict[str, Any]], writer: str, route: str) -> dict[str, Any]:
    return {
        one["reader"]: one.get("verdict", one.get("error"))
        for one in pairs
        if (one["writer"], one["route"]) == (writer, route)
    }


def test_only_torch_reads_its_own_files(pairs: list[dict[str, Any]]) -> None:
    others = dict.fromkeys(("tensorflow", "chainer", "jax"), NO_READER)
    assert verdicts(pairs, "torch-save", BY_ITSELF) == {"pytorch": EQUAL, **others}


@pytest.mark.parametrize("writer", ["keras-weights", "chainer-hdf5", "df-jax"])
def test_public_containers_are_arrays_to_others(pairs: list[dict[str, Any]], writer: str) -> None:
    assert Counter(verdicts(pairs, writer, BY_ITSELF).values()) == {EQUAL: 1, ARRAYS: 3}


@pytest.mark.parametrize("writer", ["torch-save", "keras-weights", "df-jax"])
def test_an_import_gives_equal_outputs(pairs: list[dict[str, Any]], writer: str) -> None:
    assert Counter(verdicts(pairs, writer, BY_DEEPFREEZE).values()) == {EQUAL: 3}


def test_what_is_refused_has_the_command_s_words(pairs: list[dict[str, Any]]) -> None:
    refused = [one for one in pairs if one["route"] == BY_DEEPFREEZE and "reason" in one
               and one["writer"] == "chainer-hdf5"]  # fmt: skip
    assert all(one["verdict"] == NO_READER and "compressed" in one["reason"] for one in refused)
    assert len(refused) == 3


def test_keras_reads_its_own_files_on_jax(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "KERAS_BACKENDS", {"jax": "jax"})
    plan = Plan(quick=True, seed=7)
    case = next(each for each in experiment.cases(plan) if each.name == "keras-backends")
    rows = study_run.rows_of(case, Environments(), tmp_path, plan)
    assert {row["writer"]: row["verdict"] for row in rows} == {
        "keras": EQUAL,
        "keras-weights": EQUAL,
    }


def test_a_network_with_other_weights_is_no_equal(tmp_path: Path) -> None:
    made = portability.Portability(5, tmp_path, sys.executable)
    network = Torch()
    network.fill_from(made.source, made.source.arrays())
    assert made.compared(network)["verdict"] == EQUAL
    arrays = network.arrays()
    arrays["dense3.bias"] = arrays["dense3.bias"] + np.float32(1e-3)
    network.fill(arrays)
    assert made.compared(network)["verdict"] == portability.OTHER
    assert len({one.framework for one in NETWORKS}) == 4
