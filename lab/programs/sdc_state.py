"""What is trained where bits are flipped, by names and shapes. Imports no framework."""

import math

from lab.networks.layout import Layout, TensorSpec

INPUTS, HIDDEN, CLASSES = 32, 128, 8
CHECKPOINT_STEP, STEPS = 40, 120
BATCH, ROWS = 32, 512

MODEL, OPTIMIZER, STATISTICS = "model", "optimizer", "batch-norm statistics"
COMPONENTS = (MODEL, OPTIMIZER, STATISTICS)
ADAM, MOMENTUM = "adam", "momentum"
SLOTS = {ADAM: ("exp_avg", "exp_avg_sq"), MOMENTUM: ("momentum_buffer",)}

WIDTHS = ((INPUTS, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, CLASSES))


def parameters() -> dict[str, tuple[int, ...]]:
    """By the names that torch gives them in `sdc_training.network()`."""
    found: dict[str, tuple[int, ...]] = {}
    for layer, (inputs, outputs) in enumerate(WIDTHS):
        found |= {f"dense{layer}.weight": (outputs, inputs), f"dense{layer}.bias": (outputs,)}
        if layer < len(WIDTHS) - 1:
            found |= {f"norm{layer}.weight": (outputs,), f"norm{layer}.bias": (outputs,)}
    return found


def statistics() -> dict[str, tuple[int, ...]]:
    return {
        f"norm{layer}.running_{kind}": (HIDDEN,)
        for layer in range(len(WIDTHS) - 1)
        for kind in ("mean", "var")
    }


def moments(optimizer: str) -> dict[str, tuple[int, ...]]:
    """Without Adam's counters of steps, which are one number each."""
    return {
        f"{name}.{slot}": shape for name, shape in parameters().items() for slot in SLOTS[optimizer]
    }


def shapes(component: str, optimizer: str = ADAM) -> dict[str, tuple[int, ...]]:
    if component == OPTIMIZER:
        return moments(optimizer)
    return parameters() if component == MODEL else statistics()


def sizes(component: str, optimizer: str = ADAM) -> dict[str, int]:
    return {name: math.prod(shape) for name, shape in shapes(component, optimizer).items()}


def layout() -> Layout:
    specs = (
        TensorSpec(name, "float32", shape)
        for component in COMPONENTS
        for name, shape in shapes(component).items()
    )
    return Layout("sdc", "A network of three layers with Adam", tuple(specs))
