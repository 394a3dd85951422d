"""What every saver saves here: three versions of one small state. Imports no framework."""

from __future__ import annotations

from collections.abc import Iterator

from lab.networks.layout import Layout, TensorSpec

OLDER, NEWER = 1, 2  # the steps that are saved
BLANK = 3  # what a process holds before it loads: never saved
LATER = 3  # the step at which the newer version is saved again

LAYERS = 12
WIDTH = 192


def layout(layers: int = LAYERS) -> Layout:
    """Of a small network with Adam: large enough that a save has a middle."""
    specs = tuple(spec for index in range(layers) for spec in layer(f"layer{index}"))
    return Layout("torture", f"A network of {layers} layers with Adam", specs)


def layer(name: str) -> Iterator[TensorSpec]:
    for part, shape in (("weight", (WIDTH, WIDTH)), ("bias", (WIDTH,))):
        for suffix in ("", ".exp_avg", ".exp_avg_sq"):
            yield TensorSpec(f"{name}.{part}{suffix}", "float32", shape)
    yield TensorSpec(f"{name}.step", "float32", ())
    yield TensorSpec(f"{name}.batches", "int64", ())
