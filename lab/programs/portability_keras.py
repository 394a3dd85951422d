"""Keras's own files in Keras on another backend: one process saves, one for each backend reads."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from lab.programs.answer import carry_out

MODEL, WEIGHTS, OUTPUTS = "m.keras", "m.weights.h5", "outputs.npz"
EQUAL, OTHER = "equal outputs", "other outputs"


def save(place: Path, seed: int) -> None:
    """On TensorFlow: NT3, what it makes of some rows, and how much of that is rounding."""
    networks: Any = importlib.import_module("lab.networks.portable")
    generator = np.random.default_rng(seed)
    weights, network = networks.Torch(), networks.Keras()
    x = generator.standard_normal((networks.ROWS, 1, networks.GENES), np.float32)
    weights.fill_from(network, network.arrays())
    network.network.save(place / MODEL)
    network.network.save_weights(place / WEIGHTS)
    np.savez(
        place / OUTPUTS, x=x.transpose(0, 2, 1), wanted=network.forward(x),
        tolerance=networks.tolerance(weights, x),
    )  # fmt: skip


def compared(model: Any, place: Path) -> dict[str, Any]:
    keras: Any = importlib.import_module("keras")
    with np.load(place / OUTPUTS) as file:
        x, wanted, tolerance = file["x"], file["wanted"], float(file["tolerance"])
    got = keras.ops.convert_to_numpy(model(x, training=False))
    difference = float(np.abs(got - wanted).max())
    about = {"difference": difference, "tolerance": tolerance}
    return {"verdict": EQUAL if difference <= tolerance else OTHER, "about": about}


def read(place: Path) -> dict[str, dict[str, Any]]:
    """By writer."""
    keras: Any = importlib.import_module("keras")

    def whole() -> Any:
        return keras.models.load_model(place / MODEL, compile=False)

    def weights() -> Any:
        model = keras.models.clone_model(whole())  # initialised anew
        model.load_weights(place / WEIGHTS, skip_mismatch=False)
        return model

    ways = {"keras": whole, "keras-weights": weights}
    return {name: attempted(way, place) for name, way in ways.items()}


def attempted(way: Callable[[], Any], place: Path) -> dict[str, Any]:
    try:
        return compared(way(), place)
    except Exception as error:  # becomes that writer's row
        return {"error": f"{type(error).__name__}: {error}"}


def work(request: dict[str, Any]) -> Any:
    place = Path(request["directory"])
    if request["what"] == "save":
        save(place, request["seed"])
        return {}
    return read(place)


if __name__ == "__main__":
    sys.exit(carry_out(sys.argv[1:], work))
