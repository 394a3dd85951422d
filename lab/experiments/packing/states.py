"""The states that are packed: three networks, trained some steps from a seed, saved twice each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from torch import Tensor, nn

import deepfreeze as df
from examples.networks.resnet import resnet18

SEED = 7
ROOT = Path(__file__).resolve().parents[3]
CONTEXT = 64  # bytes of text that the language models see
Batch = tuple[Tensor, Tensor]


class Decoder(nn.Module):
    """A decoder of bytes, as GPT is built."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, width)
        self.places = nn.Parameter(0.02 * torch.randn(CONTEXT, width))
        layer = nn.TransformerEncoderLayer(
            width, width // 32, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 256)

    def forward(self, text: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(CONTEXT, dtype=self.places.dtype)
        hidden = self.layers(self.embedding(text) + self.places, mask=mask)
        return self.head(hidden).transpose(1, 2)  # type: ignore[no-any-return]


def passages(count: int) -> Iterator[Batch]:
    """Batches of this repository's own documents, from random places."""
    pages = sorted((ROOT / "docs").glob("*.md"))
    text = torch.tensor(list(b"".join(page.read_bytes() for page in pages)))
    while True:
        begins = torch.randint(len(text) - CONTEXT - 1, (count,))
        parts = torch.stack([text[begin : begin + CONTEXT + 1] for begin in begins.tolist()])
        yield parts[:, :-1], parts[:, 1:]


def digits(count: int) -> Iterator[Batch]:
    bunch = load_digits()
    images = torch.tensor(bunch.images, dtype=torch.float32).unsqueeze(1) / 16
    images = nn.functional.interpolate(images, scale_factor=4).expand(-1, 3, -1, -1)
    labels = torch.tensor(bunch.target)
    while True:
        chosen = torch.randint(len(labels), (count,))
        yield images[chosen], labels[chosen]


@dataclass(frozen=True)
class Network:
    """One line of the tables."""

    title: str
    make: Callable[[], nn.Module]
    batches: Callable[[], Iterator[Batch]]
    steps: int
    rate: float = 1e-3


def bf16_decoder() -> nn.Module:
    return Decoder(512, 4).to(torch.bfloat16)


NETWORKS = {
    "gpt": Network("GPT, fp32, AdamW", lambda: Decoder(384, 6), lambda: passages(16), 40),
    "resnet18": Network("ResNet-18, fp32, AdamW", lambda: resnet18(10), lambda: digits(32), 40),
    "gpt-bf16": Network("GPT, bf16, AdamW", bf16_decoder, lambda: passages(16), 40, 3e-4),
}
TINY = Network("GPT of one layer, fp32, AdamW", lambda: Decoder(128, 1), lambda: passages(4), 4)


def train(network: Network, run: Path) -> None:
    """Saves in the middle and at the end."""
    torch.manual_seed(SEED)
    model = network.make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=network.rate)
    state = {"model": model, "optimizer": optimizer}
    batches = network.batches()
    with df.Checkpointer(run) as ckpt:
        for step in range(1, network.steps + 1):
            inputs, targets = next(batches)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs).float(), targets).backward()
            optimizer.step()
            if step in (network.steps // 2, network.steps):
                handle = ckpt.save(step, state)
                assert handle is not None
                handle.wait("durable")
