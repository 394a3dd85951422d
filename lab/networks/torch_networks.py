"""Networks that the benchmarks add to those of examples/networks."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from examples.networks.candle import GENES_FULL

P1B1_WIDTHS = (2000, 600, 2, 600, 2000)


class P1B1(nn.Sequential):
    """The autoencoder of CANDLE's Pilot 1, written from the benchmark's specification.

    Gene expressions through dense layers to two latent values and back: 244,400,085 parameters at
    60,483 genes. Glorot's uniform weights, biases of zero, sigmoid at the end.
    """

    def __init__(self, genes: int = GENES_FULL, widths: tuple[int, ...] = P1B1_WIDTHS) -> None:
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise((genes, *widths, genes)):
            layers += [dense(inputs, outputs), nn.ReLU()]
        super().__init__(*layers[:-1], nn.Sigmoid())


def dense(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


MLP_INPUTS, MLP_WIDTHS, MLP_CLASSES = 784, (1024, 1024), 10


class MLP(nn.Sequential):
    """Dense layers with batch norm and dropout: 1,867,786 parameters, in every framework."""

    def __init__(self) -> None:
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise((MLP_INPUTS, *MLP_WIDTHS)):
            layers += [dense(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU(), nn.Dropout(0.1)]
        super().__init__(*layers, dense(MLP_WIDTHS[-1], MLP_CLASSES))


class LoRALinear(nn.Module):
    """A frozen linear layer and a trained update of low rank beside it (Hu et al., 2021)."""

    def __init__(self, inputs: int, outputs: int, rank: int) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs).requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, inputs) / rank)
        self.up = nn.Parameter(torch.zeros(outputs, rank))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base(x) + x @ self.down.t() @ self.up.t()
        return out


class LoRABlock(nn.Module):
    """A block of a causal transformer; its attention's projections have adapters."""

    def __init__(self, width: int, heads: int, rank: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width).requires_grad_(False)
        self.qkv = LoRALinear(width, 3 * width, rank)
        self.out = LoRALinear(width, width, rank)
        self.norm2 = nn.LayerNorm(width).requires_grad_(False)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        ).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.norm1(x))
        out: Tensor = x + self.mlp(self.norm2(x))
        return out

    def attend(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        heads = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        out: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return out


class LoRATransformer(nn.Module):
    """A small language model: all of it frozen but the adapters, 1 % of the parameters."""

    def __init__(
        self, layers: int = 10, width: int = 768, heads: int = 12, rank: int = 16, words: int = 4096
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width).requires_grad_(False)
        self.blocks = nn.Sequential(*(LoRABlock(width, heads, rank) for _ in range(layers)))
        self.norm = nn.LayerNorm(width).requires_grad_(False)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden: Tensor = self.norm(self.blocks(self.embedding(tokens)))
        return hidden @ self.embedding.weight.t()


class Tiny(nn.Module):
    """For the smoke size: something frozen, batch-norm statistics, dropout, a few layers."""

    def __init__(self, inputs: int = 64, width: int = 256, classes: int = 10) -> None:
        super().__init__()
        self.features = nn.Linear(inputs, width).requires_grad_(False)
        self.hidden = nn.Linear(width, width)
        self.norm = nn.BatchNorm1d(width)
        self.dropout = nn.Dropout(0.1)
        self.classifier = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.hidden(self.features(x).relu())).relu()
        out: Tensor = self.classifier(self.dropout(x))
        return out


# CANDLE's networks of several inputs (Pilot 1), written from the benchmarks' specifications.


WIDTH, DEPTH = 1000, 3


def tower(inputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for index in range(DEPTH):
        layers += [dense(WIDTH if index else inputs, WIDTH), nn.ReLU()]
    return nn.Sequential(*layers)


class SharedTowers(nn.Module):
    """`features` has the length of each kind, `inputs` the kinds in order; then come the doses.

    They stand side by side in one tensor, `length` numbers for each sample.
    """

    def __init__(self, features: dict[str, int], inputs: tuple[str, ...], doses: int = 0) -> None:
        super().__init__()
        self.inputs = inputs
        self.lengths = [*(features[name] for name in inputs), doses]
        self.towers = nn.ModuleDict({name: tower(length) for name, length in features.items()})
        self.head = tower(len(inputs) * WIDTH + doses)
        self.out = dense(WIDTH, 1)

    @property
    def length(self) -> int:
        return sum(self.lengths)

    def forward(self, x: Tensor) -> Tensor:
        *parts, doses = x.split(self.lengths, 1)
        towers = [self.towers[name](part) for name, part in zip(self.inputs, parts, strict=True)]
        response: Tensor = self.out(self.head(torch.cat([*towers, doses], 1)))
        return response


def combo() -> SharedTowers:
    """How a cell line responds to a pair of drugs: 13,742,001 parameters."""
    return SharedTowers({"cell": 923, "drug": 3809}, ("cell", "drug", "drug"))


def uno() -> SharedTowers:
    """The same with doses, and two descriptions of each drug: 21,275,001 parameters."""
    drug = ("descriptors", "fingerprints")
    features = {"cell": 942, "descriptors": 5270, "fingerprints": 2048}
    return SharedTowers(features, ("cell", *drug, *drug), doses=2)
