"""The cost of a save for a donating step: `python -m tests.frameworks.jax_cost --rounds 15`.

One update of 100 MiB, to which the state is donated, without a save and behind one: at once, after
fence(), and once the save was captured and holds nothing any more. Medians, lowest and highest.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax
from jax import numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import deepfreeze as df
from tests.e2e.command import conclude, make_parser, scratch

MODULE = "tests.frameworks.jax_cost"
ARRAYS = 16
SHAPE = (8, 204_800)  # 6.25 MiB of float32


@partial(jax.jit, donate_argnums=0)
def update(tree: dict[str, Any]) -> dict[str, Any]:
    return jax.tree.map(lambda x: x * 0.5 + 1, tree)


def let_go(ckpt: df.Checkpointer, handle: df.SaveHandle) -> None:
    handle.wait()


def fenced(ckpt: df.Checkpointer, handle: df.SaveHandle) -> None:
    ckpt.fence()


BEFORE_UPDATE: dict[str, Callable[[df.Checkpointer, df.SaveHandle], None]] = {
    "held": lambda ckpt, handle: None,
    "fenced": fenced,
    "captured": let_go,
}


class Costs:
    """One run, and the seconds of each part by mode."""

    def __init__(self, run: Path, sharded: bool) -> None:
        self.ckpt = df.Checkpointer(run, keep=df.keep(last=1), profile="latency")
        tree = {f"a{i}": jnp.ones(SHAPE) for i in range(ARRAYS)}
        if sharded:
            tree = jax.device_put(tree, NamedSharding(jax.make_mesh((8,), ("a",)), P("a")))
        self.state = {"tree": tree}
        self.step = 0
        self.seconds: dict[str, list[float]] = {}

    def timed(self, name: str, call: Callable[[], object]) -> None:
        began = time.perf_counter()
        call()
        self.seconds.setdefault(name, []).append(time.perf_counter() - began)

    def update(self) -> None:
        self.state["tree"] = jax.block_until_ready(update(self.state["tree"]))

    def save(self) -> df.SaveHandle:
        self.step += 1
        handle = self.ckpt.save(self.step, self.state)
        assert handle is not None
        return handle

    def round(self) -> None:
        self.timed("update alone", self.update)
        for mode, before in BEFORE_UPDATE.items():
            began = time.perf_counter()
            handle = self.save()
            saved = time.perf_counter()
            before(self.ckpt, handle)
            self.seconds.setdefault(f"{mode}: save", []).append(saved - began)
            self.seconds.setdefault(f"{mode}: until update", []).append(time.perf_counter() - saved)
            self.timed(f"{mode}: update", self.update)
            handle.wait()

    def report(self) -> list[str]:
        texts = []
        for name, all_of_it in self.seconds.items():
            found = [
                1000 * each for each in all_of_it[2:]
            ]  # the first ones compile, and touch the arena
            middle = statistics.median(found)
            texts.append(f"  {name:22} {middle:7.1f} ms  {min(found):7.1f} .. {max(found):.1f}")
        return texts


def main() -> int:
    parser = make_parser(MODULE, __doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--sharded", action="store_true", help="over 8 devices of this process")
    options = parser.parse_args()
    with scratch(options, "jax-cost") as place:
        costs = Costs(Path(place) / "run", options.sharded)
        for _ in range(options.rounds + 2):
            costs.round()
        costs.ckpt.close()
    text = "\n".join([f"{options.rounds} rounds:", *costs.report()])
    return conclude(options, text, costs.seconds, [])


if __name__ == "__main__":
    sys.exit(main())
