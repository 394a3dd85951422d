"""The networks are the published ones: their sizes say so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from examples.networks import resnet
from examples.networks.candle import GENES_FULL, GENES_SMALL, NT3


def parameter_count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("build", "parameters", "buffers", "tensors"),
    [
        (resnet.resnet18, 11_689_512, 9_620, 122),
        (resnet.resnet34, 21_797_672, 17_060, 218),
        (resnet.resnet50, 25_557_032, 53_120 + 53, 320),
        (resnet.resnet101, 44_549_160, 105_344 + 104, 626),
        (resnet.resnet152, 60_192_808, 151_424 + 155, 932),
    ],
)
def test_resnet_has_the_published_size(
    build: Callable[[], nn.Module], parameters: int, buffers: int, tensors: int
) -> None:
    with torch.device("meta"):
        model = build()
    assert parameter_count(model) == parameters
    assert sum(buffer.numel() for buffer in model.buffers()) == buffers
    assert len(model.state_dict()) == tensors


def test_resnet50_for_ten_classes_has_the_expected_size() -> None:
    with torch.device("meta"):
        assert parameter_count(resnet.resnet50(10)) == 23_528_522


@pytest.mark.parametrize(
    ("genes", "parameters"), [(GENES_SMALL, 15_582_118), (GENES_FULL, 154_922_918)]
)
def test_nt3_has_the_published_size(genes: int, parameters: int) -> None:
    with torch.device("meta"):
        model = NT3(genes)
    assert parameter_count(model) == parameters
    assert len(model.state_dict()) == 10


@pytest.mark.parametrize("build", [resnet.resnet18, resnet.resnet50])
def test_resnet_bottleneck_strides_leave_one_pixel_of_32(build: Callable[[int], nn.Module]) -> None:
    with torch.device("meta"):
        assert build(10)(torch.empty(2, 3, 32, 32)).shape == (2, 10)


def test_v1_5_places_the_stride_in_the_3x3_convolution() -> None:
    with torch.device("meta"):
        block = resnet.resnet50().layer2[0]
    assert isinstance(block, resnet.Bottleneck)
    assert block.conv1.stride == (1, 1)
    assert block.conv2.stride == (2, 2)


def test_nt3_maps_a_profile_to_two_logits() -> None:
    with torch.device("meta"):
        assert NT3(GENES_SMALL)(torch.empty(3, 1, GENES_SMALL)).shape == (3, 2)
