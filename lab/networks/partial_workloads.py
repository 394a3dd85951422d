"""Trainings of which only a part of the state changes, and some in which all of it does."""

import torch
from torch import Tensor, nn

from examples.networks.resnet import resnet50
from lab.networks import torch_networks as networks
from lab.networks.torch_workloads import (
    BATCH_COUNT,
    WORKLOADS,
    Batch,
    Parts,
    Workload,
    adam,
    averaged,
    next_word_loss,
    resnet_parts,
    response_parts,
)

EXPERTS, BUSY = 8, 2  # experts, and how many of them a batch uses
WORDS, CLASSES = 1024, 1024
TOKENS = (8, 64)  # of a batch
BATCHES_MAX = 1 << 10  # steps of a segment, before the first batch comes again
TINY_WORDS = 12_000  # times 384 numbers: 18 MB, enough for a file that checkpoints share


class Experts(nn.Module):
    """A mixture of experts. A token's own number routes it (hash layers; Roller et al., 2021)."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))
            for _ in range(EXPERTS)
        )
        self.head = nn.Linear(width, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        """An expert that gets no token gets no gradient either, and so no update."""
        hidden = self.embedding(tokens)
        mixed = torch.zeros_like(hidden)
        for number, expert in enumerate(self.experts):
            chosen = tokens % EXPERTS == number
            if bool(chosen.any()):
                mixed[chosen] = expert(hidden[chosen])
        out: Tensor = self.head(hidden + mixed)
        return out


def routed(first: int, count: int) -> Batch:
    """Tokens for `count` experts from `first` on."""
    tokens = torch.randint(WORDS // EXPERTS, TOKENS) * EXPERTS
    tokens += first + torch.randint(count, TOKENS)
    return tokens, torch.randint(CLASSES, TOKENS)


def experts_parts(*, in_turn: bool, width: int = 512, inner: int = 2048) -> Parts:
    """The batch of step 1 uses all experts, so that each has its moments. Later ones use two.

    Those are the same two in every step, or the next two.
    """
    few = [routed(BUSY * index if in_turn else 0, BUSY) for index in range(BATCH_COUNT)]
    batches = [few[step % BATCH_COUNT] for step in range(BATCHES_MAX)]
    batches[1] = routed(0, EXPERTS)
    return Parts(Experts(width, inner), adam, next_word_loss, batches)


def frozen_parts() -> Parts:
    parts = resnet_parts(resnet50)
    parts.model.requires_grad_(False)
    parts.model.get_submodule("fc").requires_grad_(True)
    return parts


def tiny_lora_parts() -> Parts:
    model = networks.LoRATransformer(1, 384, 4, 8, TINY_WORDS)
    texts = [torch.randint(TINY_WORDS, (1, 9)) for _ in range(BATCH_COUNT)]
    batches = [(text[:, :-1], text[:, 1:]) for text in texts]
    return Parts(model, adam, next_word_loss, batches)


PARTIAL: dict[str, Workload] = {
    "lora": WORKLOADS["lora"],
    "frozen": Workload("ResNet-50, frozen but for its last layer, Adam", 10, frozen_parts),
    "experts": Workload(
        "mixture of 8 experts of which the same 2 are used, Adam",
        10,
        lambda: experts_parts(in_turn=False),
    ),
    "experts-in-turn": Workload(
        "mixture of 8 experts, 2 used in each step and the next 2 in the next one, Adam",
        10,
        lambda: experts_parts(in_turn=True),
    ),
    "dense": Workload(
        "CANDLE Combo, all of it trained, Adam", 10, lambda: response_parts(networks.combo)
    ),
    "dense-ema": Workload(
        "CANDLE Combo with Adam and a moving average of its weights",
        10,
        lambda: averaged(response_parts(networks.combo)),
    ),
    "tiny-lora": Workload("smoke size: LoRA on one frozen block", 2, tiny_lora_parts),
}
