"""The workloads have the sizes that they claim; computed without memory for them."""

from pathlib import Path

import pytest
import torch
from torch import nn

from lab.networks.torch_networks import WIDTH, LoRATransformer, combo
from lab.networks.torch_workloads import WORKLOADS, InBackwardTraining, Parts, Training
from lab.writers.loop import Saver


def parts_without_memory(name: str) -> Parts:
    with torch.device("meta"):
        return WORKLOADS[name].make_parts()


def updated(training: Training) -> Training:
    """After one step: the loss itself has no value here."""
    parts = training.parts
    inputs, wanted = parts.batches[0]
    loss = parts.loss(parts.model(inputs), wanted)
    assert loss.shape == ()
    loss.backward()
    for optimizer in training.optimizers.values():
        optimizer.step()
    return training


@pytest.mark.parametrize(
    ("name", "megabytes"),
    [
        ("resnet50", 306.9),
        ("resnet152", 722.9),
        ("nt3", 619.7),
        ("nt3-6k", 62.3),
        ("nt3-1k", 10.8),
        ("p1b1", 2932.8),
        ("p1b1-6k", 319.3),
        ("combo", 164.9),
        ("uno", 255.3),
        ("mlp", 22.4),
        ("ema", 409.3),
        ("lora", 305.0),
    ],
)
def test_a_workload_has_a_state_of_the_claimed_size(name: str, megabytes: float) -> None:
    training = updated(Training(parts_without_memory(name)))
    assert sum(one.nbytes for one in training.tensors()) / 1e6 == pytest.approx(megabytes, abs=0.1)


@pytest.mark.parametrize("name", ["resnet50", "lora"])
def test_both_styles_of_training_have_the_same_state(name: str) -> None:
    plain = updated(Training(parts_without_memory(name)))
    in_backward = updated(InBackwardTraining(parts_without_memory(name)))
    assert len(in_backward.optimizers) == len(plain.parts.trained())
    sizes = [sorted(one.nbytes for one in each.tensors()) for each in (plain, in_backward)]
    assert sizes[0] == sizes[1]


def parameter_count(model: nn.Module, *, trained: bool = False) -> int:
    found = [one for one in model.parameters() if one.requires_grad or not trained]
    return sum(parameter.numel() for parameter in found)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("resnet50", 25_557_032),
        ("resnet152", 60_192_808),
        ("nt3", 154_922_918),
        ("nt3-6k", 15_582_118),
        ("nt3-1k", 2_705_318),
        ("p1b1", 244_400_085),
        ("p1b1-6k", 26_605_650),
        ("combo", 13_742_001),
        ("uno", 21_275_001),
        ("mlp", 1_867_786),
    ],
)
def test_a_network_has_the_published_size(name: str, count: int) -> None:
    assert parameter_count(parts_without_memory(name).model) == count


def test_both_drugs_of_a_pair_go_through_one_tower() -> None:
    with torch.device("meta"):
        model = combo()
    assert set(model.towers) == {"cell", "drug"}
    assert model.head[0].in_features == 3 * WIDTH


def test_one_percent_of_the_lora_network_is_trained() -> None:
    with torch.device("meta"):
        model = LoRATransformer()
    assert 0.009 < parameter_count(model, trained=True) / parameter_count(model) < 0.011


@pytest.mark.parametrize("name", ["tiny", "mlp", "nt3-1k", "combo"])
def test_the_same_seed_gives_the_same_training(name: str) -> None:
    losses = []
    for _ in range(2):
        training = WORKLOADS[name].build(7, in_backward=False)
        losses.append([training.train_step(step, no_saver(training)) for step in range(3)])
    assert losses[0] == losses[1]
    assert len(set(losses[0])) == 3


def no_saver(training: Training) -> Saver:
    return Saver(training, Path(), every=1)


def test_frozen_parts_and_averages_are_guarded() -> None:
    for style in (False, True):
        training = WORKLOADS["tiny"].build(7, in_backward=style)
        assert training.guarded_modules == [training.parts.model, training.parts.averaged]
