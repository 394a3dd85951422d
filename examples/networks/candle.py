"""NT3 of the CANDLE benchmarks (Pilot 1): is an expression profile of tumour or normal tissue?

Written from the benchmark's specification. Its softmax is in the loss (CrossEntropyLoss on logits).
"""

from __future__ import annotations

from torch import Tensor, nn

GENES_FULL = 60_483
GENES_SMALL = 6_048
FILTERS = 128


def flat_features(genes: int) -> int:
    """The number of features after two valid convolutions (20 and 10 wide) and a pool by ten."""
    return (genes - 19 - 9) // 10 * FILTERS


class NT3(nn.Module):
    """1-D convolutions over the genes; nearly all parameters are in one dense layer."""

    def __init__(self, genes: int = GENES_FULL, classes: int = 2) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(1, FILTERS, 20)
        self.conv2 = nn.Conv1d(FILTERS, FILTERS, 10)
        self.pool = nn.MaxPool1d(10)
        self.dense1 = nn.Linear(flat_features(genes), 200)
        self.dense2 = nn.Linear(200, 20)
        self.dense3 = nn.Linear(20, classes)
        self.dropout = nn.Dropout(0.1)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.conv1(x))
        x = self.pool(self.relu(self.conv2(x))).flatten(1)
        x = self.dropout(self.relu(self.dense1(x)))
        x = self.dropout(self.relu(self.dense2(x)))
        out: Tensor = self.dense3(x)
        return out
