"""What is trained, in its real size and in one for a try, on whatever device."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from examples.networks.candle import GENES_FULL
from examples.networks.resnet import BasicBlock, ResNet, resnet152
from lab.networks.torch_workloads import (
    BATCH_COUNT,
    GENES_FEW,
    Parts,
    Workload,
    adam,
    adamw,
    classified,
    next_word_loss,
    nt3_parts,
)

WORDS, LENGTH = 50_304, 1024


class Decoder(nn.Module):
    """A causal transformer as GPT-2 is one: 1.31 G parameters, or what the arguments say.

    It computes in bfloat16; weights, and so moments, are in float32: 15.8 GB with AdamW.
    """

    def __init__(
        self,
        layers: int = 24,
        width: int = 2048,
        heads: int = 16,
        words: int = WORDS,
        length: int = LENGTH,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(length, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, heads, 4 * width, dropout, "gelu", batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        for embedding in (self.words, self.places):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=tokens.device)
        with torch.autocast(tokens.device.type, torch.bfloat16):
            hidden = self.words(tokens) + self.places.weight[:length]
            for layer in self.layers:
                hidden = layer(hidden, src_mask=mask, is_causal=True)
            logits = nn.functional.linear(self.norm(hidden), self.words.weight)
        return logits.float()


def decoder_parts(model: Decoder, batch: int) -> Parts:
    words, length = model.words.num_embeddings, model.places.num_embeddings
    texts = [torch.randint(words, (batch, length + 1)) for _ in range(BATCH_COUNT)]
    return Parts(model, adamw, next_word_loss, [(text[:, :-1], text[:, 1:]) for text in texts])


def resnet_parts(model: ResNet, shape: tuple[int, int, int, int]) -> Parts:
    batches = classified(shape, model.fc.out_features)
    return Parts(model, adam, nn.functional.cross_entropy, batches)


# Steps: of a segment, where the interval does not ask for more. Batches keep such a device busy.
MODELS = {
    "nt3": Workload("CANDLE NT3, 60,483 genes, SGD", 16, lambda: nt3_parts(GENES_FULL, 20)),
    "resnet152": Workload(
        "ResNet-152 with Adam", 16, lambda: resnet_parts(resnet152(), (128, 3, 224, 224))
    ),
    "decoder": Workload("decoder of 1.31 G with AdamW", 2, lambda: decoder_parts(Decoder(), 16)),
}
QUICK_MODELS = {
    "nt3": Workload("CANDLE NT3, 1,024 genes, SGD", 4, lambda: nt3_parts(GENES_FEW, 2)),
    "resnet152": Workload(
        "ResNet-10 with Adam",
        4,
        lambda: resnet_parts(ResNet(BasicBlock, (1, 1, 1, 1), 10), (2, 3, 32, 32)),
    ),
    "decoder": Workload(
        "decoder of 0.1 M with AdamW",
        4,
        lambda: decoder_parts(Decoder(layers=2, width=64, heads=4, words=256, length=32), 2),
    ),
}


def workload(name: str, device: str, *, quick: bool) -> Workload:
    return replace((QUICK_MODELS if quick else MODELS)[name], device=device)
