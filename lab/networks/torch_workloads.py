"""The trainings that are measured, built anew from a seed for every segment."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.hooks import RemovableHandle

from examples.digest import seed_generators
from examples.networks.candle import GENES_FULL, GENES_SMALL, NT3
from examples.networks.resnet import ResNet, resnet50, resnet152
from lab.networks import torch_networks as networks

Batch = tuple[Tensor, Tensor]
OptimizerFactory = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
Loss = Callable[[Tensor, Tensor], Tensor]

BATCH_COUNT = 4  # generated batches, used in turn
EMA_DECAY = 0.999
GENES_FEW = 1_024  # NT3 of a fifth of a second a step


class Hooks(Protocol):
    """What a saver wants to be told by the training loop."""

    def before_update(self) -> None:
        """Optimizers are about to change parameters and their own state."""

    def before_average(self) -> None:
        """The averaged copy is about to be changed in place."""


@dataclass(frozen=True)
class Adapter:
    """The part of a model that filters save, without the tensors that are frozen."""

    get: Callable[[Any], dict[str, Tensor]]
    put: Callable[[Any, dict[str, Tensor]], object]


def trained_tensors(model: nn.Module) -> dict[str, Tensor]:
    return {name: one.detach() for name, one in model.named_parameters() if one.requires_grad}


def put_tensors(model: nn.Module, found: dict[str, Tensor]) -> None:
    model.load_state_dict(found, strict=False)


@dataclass
class Parts:
    """What a workload is made of."""

    model: nn.Module
    make_optimizer: OptimizerFactory
    loss: Loss
    batches: list[Batch]
    averaged: AveragedModel | None = None
    adapter: Adapter = Adapter(trained_tensors, put_tensors)

    def trained(self) -> list[tuple[str, nn.Parameter]]:
        return [(name, p) for name, p in self.model.named_parameters() if p.requires_grad]

    def has_frozen(self) -> bool:
        return any(not parameter.requires_grad for parameter in self.model.parameters())


class Training:
    """One training run: backward, then one optimizer's step."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.hooks: list[RemovableHandle] = []
        self.optimizers = self._make_optimizers()
        # What holds parameters that no optimizer owns.
        self.guarded_modules: list[nn.Module] = [parts.model] if parts.has_frozen() else []
        self.state: dict[str, Any] = {"model": parts.model, "optim": self._optimizer_state()}
        if parts.averaged is not None:
            self.guarded_modules.append(parts.averaged)
            self.state["ema"] = parts.averaged
        parts.model.train()

    def _make_optimizers(self) -> dict[str, torch.optim.Optimizer]:
        parameters = [parameter for _, parameter in self.parts.trained()]
        return {"all": self.parts.make_optimizer(parameters)}

    def _optimizer_state(self) -> Any:
        return self.optimizers["all"]

    def train_step(self, step: int, hooks: Hooks) -> float:
        """Forward, backward, update; returns the loss."""
        inputs, wanted = self.parts.batches[step % len(self.parts.batches)]
        loss = self.parts.loss(self.parts.model(inputs), wanted)
        loss.backward()
        self._update(hooks)
        if self.parts.averaged is not None:
            hooks.before_average()
            self.parts.averaged.update_parameters(self.parts.model)
        return float(loss.detach())

    def _update(self, hooks: Hooks) -> None:
        hooks.before_update()
        optimizer = self.optimizers["all"]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def release(self) -> None:
        """Cuts what holds parameters through autograd: an error there would keep them for ever."""
        while self.hooks:
            self.hooks.pop().remove()

    def state_dicts(self) -> dict[str, Any]:
        """The state as the values that torch.save and its relatives take."""
        return {name: plain(item) for name, item in self.state.items()}

    def load_state_dicts(self, found: dict[str, Any]) -> None:
        """Loads the result of state_dicts() into the live state."""
        for name, item in self.state.items():
            item.load_state_dict(found[name])

    def tensors(self) -> list[Tensor]:
        """Every tensor of the state."""
        return list(tensors_in(self.state_dicts()))


class InBackwardTraining(Training):
    """One optimizer a parameter, each stepped as soon as its gradient is complete."""

    def _make_optimizers(self) -> dict[str, torch.optim.Optimizer]:
        made = {}
        for name, parameter in self.parts.trained():
            optimizer = self.parts.make_optimizer([parameter])
            self.hooks.append(parameter.register_post_accumulate_grad_hook(stepper(optimizer)))
            made[name] = optimizer
        return made

    def _optimizer_state(self) -> Any:
        return dict(self.optimizers)

    def _update(self, hooks: Hooks) -> None:
        """Backward has done it."""


def stepper(optimizer: torch.optim.Optimizer) -> Callable[[Tensor], None]:
    def update(_: Tensor) -> None:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return update


def plain(item: Any) -> Any:
    if isinstance(item, dict):
        return {name: plain(value) for name, value in item.items()}
    return item.state_dict()


def tensors_in(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


@dataclass(frozen=True)
class Workload:
    """One line of the menu."""

    title: str
    steps: int  # a segment, unless the command says otherwise
    make_parts: Callable[[], Parts]
    device: str = "cpu"  # where tensors are made; what optimizers keep on the host stays

    def build(self, seed: int, *, in_backward: bool) -> Training:
        """The same weights, batches and random numbers whenever the seed is the same."""
        with torch.device(self.device):
            seed_generators(seed)
            parts = self.make_parts()
            training = InBackwardTraining(parts) if in_backward else Training(parts)
            seed_generators(seed)
        return training


def adam(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-3)


def adamw(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3)


def sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1e-3)


def classified(shape: tuple[int, ...], classes: int) -> list[Batch]:
    """Batches of normal numbers with labels; shape[0] is the batch."""
    return [(torch.randn(shape), torch.randint(classes, (shape[0],))) for _ in range(BATCH_COUNT)]


def resnet_parts(make: Callable[[], ResNet]) -> Parts:
    batches = classified((16, 3, 64, 64), 1000)
    return Parts(make(), adam, nn.functional.cross_entropy, batches)


def averaged(parts: Parts) -> Parts:
    """The same with an exponential moving average of the weights beside it."""
    parts.averaged = AveragedModel(parts.model, multi_avg_fn=get_ema_multi_avg_fn(EMA_DECAY))
    return parts


def nt3_parts(genes: int, batch: int) -> Parts:
    batches = classified((batch, 1, genes), 2)
    return Parts(NT3(genes), sgd, nn.functional.cross_entropy, batches)


def p1b1_parts(genes: int) -> Parts:
    model = networks.P1B1(genes)
    profiles = [torch.rand(100, genes) for _ in range(BATCH_COUNT)]
    return Parts(model, adam, nn.functional.mse_loss, [(batch, batch) for batch in profiles])


def response_parts(make: Callable[[], networks.SharedTowers]) -> Parts:
    model = make()
    batches = [(torch.randn(32, model.length), torch.randn(32, 1)) for _ in range(BATCH_COUNT)]
    return Parts(model, adam, nn.functional.mse_loss, batches)


def mlp_parts() -> Parts:
    batches = classified((32, networks.MLP_INPUTS), networks.MLP_CLASSES)
    return Parts(networks.MLP(), adam, nn.functional.cross_entropy, batches)


def lora_parts() -> Parts:
    model = networks.LoRATransformer()
    texts = [torch.randint(4096, (4, 33)) for _ in range(BATCH_COUNT)]
    batches = [(text[:, :-1], text[:, 1:]) for text in texts]
    return Parts(model, adamw, next_word_loss, batches)


def next_word_loss(logits: Tensor, wanted: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())


def tiny_parts() -> Parts:
    batches = classified((16, 64), 10)
    return averaged(Parts(networks.Tiny(), adam, nn.functional.cross_entropy, batches))


WORKLOADS: dict[str, Workload] = {
    "resnet50": Workload(
        "ResNet-50 with Adam, batch 16 of 3x64x64", 40, lambda: resnet_parts(resnet50)
    ),
    "resnet152": Workload(
        "ResNet-152 with Adam, batch 16 of 3x64x64", 20, lambda: resnet_parts(resnet152)
    ),
    "nt3": Workload("CANDLE NT3, 60,483 genes, SGD, batch 5", 12, lambda: nt3_parts(GENES_FULL, 5)),
    "nt3-6k": Workload(
        "CANDLE NT3, 6,048 genes, SGD, batch 20", 20, lambda: nt3_parts(GENES_SMALL, 20)
    ),
    "nt3-1k": Workload(
        "CANDLE NT3, 1,024 genes, SGD, batch 20", 40, lambda: nt3_parts(GENES_FEW, 20)
    ),
    "p1b1": Workload(
        "CANDLE P1B1, 60,483 genes, Adam, batch 100", 8, lambda: p1b1_parts(GENES_FULL)
    ),
    "p1b1-6k": Workload(
        "CANDLE P1B1, 6,048 genes, Adam, batch 100", 40, lambda: p1b1_parts(GENES_SMALL)
    ),
    "combo": Workload("CANDLE Combo, Adam, batch 32", 40, lambda: response_parts(networks.combo)),
    "uno": Workload("CANDLE Uno, Adam, batch 32", 40, lambda: response_parts(networks.uno)),
    "mlp": Workload("MLP with batch norm and dropout, Adam, batch 32", 40, mlp_parts),
    "lora": Workload("LoRA on a frozen transformer, AdamW, batch 4 of 32", 40, lora_parts),
    "ema": Workload(
        "ResNet-50 with Adam and a moving average of its weights, batch 16 of 3x64x64",
        40,
        lambda: averaged(resnet_parts(resnet50)),
    ),
    "tiny": Workload("smoke size: a few layers, one frozen, with a moving average", 4, tiny_parts),
}
