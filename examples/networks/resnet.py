"""ResNet-18/34/50/101/152, written from "Deep Residual Learning for Image Recognition".

Bottlenecks stride in their 3x3 convolution (the "v1.5" placement of torchvision), so names, shapes
and parameter counts equal those of torchvision's models.
"""

from __future__ import annotations

from torch import Tensor, nn


def conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)


def conv1x1(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)


class Residual(nn.Module):
    """A branch and a shortcut around it; the shortcut is projected if shapes differ."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                conv1x1(inputs, outputs, stride), nn.BatchNorm2d(outputs)
            )

    def branch(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        out: Tensor = self.relu(self.branch(x) + shortcut)
        return out


class BasicBlock(Residual):
    """Two 3x3 convolutions (ResNet-18 and 34)."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__(inputs, width, stride)
        self.conv1 = conv3x3(inputs, width, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv3x3(width, width)
        self.bn2 = nn.BatchNorm2d(width)

    def branch(self, x: Tensor) -> Tensor:
        out: Tensor = self.relu(self.bn1(self.conv1(x)))
        last: Tensor = self.bn2(self.conv2(out))
        return last


class Bottleneck(Residual):
    """1x1 down, 3x3, 1x1 up by four (ResNet-50, 101 and 152)."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        outputs = width * self.expansion
        super().__init__(inputs, outputs, stride)
        self.conv1 = conv1x1(inputs, width)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv3x3(width, width, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = conv1x1(width, outputs)
        self.bn3 = nn.BatchNorm2d(outputs)

    def branch(self, x: Tensor) -> Tensor:
        out: Tensor = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        last: Tensor = self.bn3(self.conv3(out))
        return last


def stage(
    block: type[BasicBlock] | type[Bottleneck], inputs: int, width: int, count: int, stride: int
) -> nn.Sequential:
    outputs = width * block.expansion
    blocks = [block(inputs, width, stride)]
    blocks += [block(outputs, width, 1) for _ in range(count - 1)]
    return nn.Sequential(*blocks)


class ResNet(nn.Module):
    """Stem, four stages, average pool, classifier."""

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        counts: tuple[int, int, int, int],
        classes: int,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        grow = block.expansion
        self.layer1 = stage(block, 64, 64, counts[0], 1)
        self.layer2 = stage(block, 64 * grow, 128, counts[1], 2)
        self.layer3 = stage(block, 128 * grow, 256, counts[2], 2)
        self.layer4 = stage(block, 256 * grow, 512, counts[3], 2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512 * grow, classes)
        self.apply(initialise)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        out: Tensor = self.fc(self.avgpool(x).flatten(1))
        return out


def initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def resnet18(classes: int = 1000) -> ResNet:
    return ResNet(BasicBlock, (2, 2, 2, 2), classes)


def resnet34(classes: int = 1000) -> ResNet:
    return ResNet(BasicBlock, (3, 4, 6, 3), classes)


def resnet50(classes: int = 1000) -> ResNet:
    return ResNet(Bottleneck, (3, 4, 6, 3), classes)


def resnet101(classes: int = 1000) -> ResNet:
    return ResNet(Bottleneck, (3, 4, 23, 3), classes)


def resnet152(classes: int = 1000) -> ResNet:
    return ResNet(Bottleneck, (3, 8, 36, 3), classes)
