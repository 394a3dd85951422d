"""The two workloads of the demo, built anew and identically in every process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy
import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import TensorDataset

from examples.digest import seed_generators
from examples.loader import Loader, resumable_loader
from examples.networks.candle import GENES_FULL, GENES_SMALL, NT3
from examples.networks.resnet import resnet50

GENES_PER_BLOCK = 24
MODES = ("window", "after_update")  # of attach()


@dataclass
class Workload:
    """A training run before its first step."""

    model: nn.Module
    optims: list[Optimizer]  # one, or one per parameter
    scheds: list[LRScheduler]  # of each optimizer
    loader: Loader
    inside_backward: bool  # each parameter is updated once its gradient is complete

    def train_step(self, images: Tensor, labels: Tensor) -> float:
        self.model.train()
        self.model.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(self.model(images), labels)
        loss.backward()
        if not self.inside_backward:
            self.optims[0].step()
        for sched in self.scheds:
            sched.step()
        return float(loss.detach())


def make_workload(
    model: nn.Module,
    loader: Loader,
    make_optim: Callable[[list[nn.Parameter]], Optimizer],
    make_sched: Callable[[Optimizer], LRScheduler],
    *,
    inside_backward: bool,
) -> Workload:
    """With one optimizer, or one per parameter that steps inside backward()."""
    parameters = list(model.parameters())
    groups = [[each] for each in parameters] if inside_backward else [parameters]
    optims = [make_optim(group) for group in groups]
    if inside_backward:
        for parameter, optim in zip(parameters, optims, strict=True):
            parameter.register_post_accumulate_grad_hook(step_and_forget(optim))
    return Workload(model, optims, list(map(make_sched, optims)), loader, inside_backward)


def step_and_forget(optim: Optimizer) -> Callable[[Tensor], None]:
    """The hook of one parameter; its gradient is not needed any more."""

    def hook(_: Tensor) -> None:
        optim.step()
        optim.zero_grad(set_to_none=True)

    return hook


@dataclass(frozen=True)
class Size:
    """How long the demo runs a workload."""

    steps: int
    batch: int
    title: str


@dataclass(frozen=True)
class Choice:
    """One line of the demo's menu."""

    build: Callable[[int, bool, bool], Workload]
    small: Size
    full: Size

    def size(self, full: bool) -> Size:
        return self.full if full else self.small


def digits() -> TensorDataset:
    """The 1,797 handwritten digits that come with scikit-learn, as 32x32 images of 3 channels."""
    bunch = load_digits()
    images = torch.from_numpy(bunch.images.astype(numpy.float32) / 16.0).unsqueeze(1)
    images = nn.functional.interpolate(images, size=(32, 32), mode="bilinear")
    images = images.repeat(1, 3, 1, 1)
    return TensorDataset(images, torch.from_numpy(bunch.target.astype(numpy.int64)))


def expression_profiles(genes: int, samples: int = 120, seed: int = 2018) -> TensorDataset:
    """Two classes of generated expression profiles, scaled to [-1, 1] gene by gene.

    CANDLE's own data (NCI Genomic Data Commons) can't be shipped with this repository, so the
    profiles are drawn: genes of one block follow one common factor, as co-regulated genes do, and
    every fifth block is shifted in the samples of the second class.
    """
    generator = numpy.random.Generator(numpy.random.PCG64(seed))
    blocks = -(-genes // GENES_PER_BLOCK)
    labels = numpy.arange(samples) % 2
    factors = generator.standard_normal((samples, blocks), dtype=numpy.float32)
    factors[:, ::5] += 1.5 * labels[:, None].astype(numpy.float32)
    loadings = generator.uniform(0.4, 1.0, genes).astype(numpy.float32)
    noise = generator.standard_normal((samples, genes), dtype=numpy.float32)
    block_of_gene = numpy.arange(genes) // GENES_PER_BLOCK
    profiles = factors[:, block_of_gene] * loadings + 0.5 * noise
    profiles /= numpy.abs(profiles).max(axis=0)
    return TensorDataset(
        torch.from_numpy(profiles).unsqueeze(1), torch.from_numpy(labels.astype(numpy.int64))
    )


def resnet50_digits(seed: int, full: bool, inside_backward: bool) -> Workload:
    """ResNet-50 with Adam: many tensors, batch-norm statistics, two moments per parameter."""
    size = CHOICES["resnet50"].size(full)
    seed_generators(seed)
    return make_workload(
        resnet50(10),
        resumable_loader(digits(), size.batch, seed),
        lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
        lambda optim: torch.optim.lr_scheduler.CosineAnnealingLR(optim, T_max=size.steps),
        inside_backward=inside_backward,
    )


def nt3_profiles(seed: int, full: bool, inside_backward: bool) -> Workload:
    """NT3: nearly all of the state is one tensor, and dropout makes the generators matter.

    CANDLE trains it by SGD without momentum; momentum is used here so that there is optimizer
    state to save and to lose.
    """
    size = CHOICES["nt3"].size(full)
    genes = GENES_FULL if full else GENES_SMALL
    seed_generators(seed)
    return make_workload(
        NT3(genes),
        resumable_loader(expression_profiles(genes), size.batch, seed),
        lambda parameters: torch.optim.SGD(parameters, lr=1e-3, momentum=0.9),
        lambda optim: torch.optim.lr_scheduler.StepLR(optim, step_size=10),
        inside_backward=inside_backward,
    )


RESNET50_TITLE = "ResNet-50 with Adam on scikit-learn's digits"
NT3_TITLE = "CANDLE NT3 ({:,} genes), SGD with momentum, on generated profiles"

CHOICES: dict[str, Choice] = {
    "resnet50": Choice(
        resnet50_digits,
        small=Size(30, 16, RESNET50_TITLE),
        full=Size(80, 16, RESNET50_TITLE),
    ),
    "nt3": Choice(
        nt3_profiles,
        small=Size(10, 20, NT3_TITLE.format(GENES_SMALL)),
        full=Size(12, 5, NT3_TITLE.format(GENES_FULL)),
    ),
}
