"""Snapshots of donated arrays: `python -m tests.frameworks.jax_donation --snapshots 200`.

Every step is saved, and the next ones, to which its arrays are donated, run while a slow copier is
them. Each checkpoint must hold the state at its save. With --bare the adapter takes addresses
without a view that holds them: then saves must be found torn, or this proves nothing.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import deepfreeze as df
from tests.e2e.command import announce_seed, conclude, make_parser, scratch

MODULE = "tests.frameworks.jax_donation"
SLOW_COPIER = "capture.background=sleep:5"
STEPS_BEHIND = 2  # that run before the copy is waited for
SHAPE = (256, 256)  # 256 KiB
ARRAYS = 4
DEVICES = "--xla_force_host_platform_device_count=8"


@partial(jax.jit, donate_argnums=0)
def update(tree: dict[str, Any]) -> dict[str, Any]:
    return jax.tree.map(lambda x: x + 1, tree)


def bare_array(array: Any, _: object) -> Any:
    """As jax_arrays._joined, but nothing holds the memory."""
    address = array.block_until_ready().unsafe_buffer_pointer()
    memory = (ctypes.c_uint8 * array.nbytes).from_address(address)
    return np.frombuffer(memory, array.dtype).reshape(array.shape)


def new_state(replicated: bool) -> dict[str, Any]:
    tree = {f"a{i}": jnp.full(SHAPE, 1000.0 * i) for i in range(ARRAYS)}
    if not replicated:
        return tree
    everywhere = NamedSharding(jax.make_mesh((8,), ("all",)), P())
    return jax.device_put(tree, everywhere)


def snapshots(run: Path, count: int, options: argparse.Namespace) -> dict[str, int]:
    """The results of a training with so many saves: the checkpoints, and the wrong ones; the saves
    that found themselves torn, that were still copying when later steps had run, and that held an
    array when it was donated."""
    state = {"tree": new_state(options.replicated)}
    handles: list[df.SaveHandle] = []
    behind = held = 0
    with df.Checkpointer(run, profile="latency") as ckpt:
        for number in range(1, count + 1):
            handle = ckpt.save(number * STEPS_BEHIND, state)
            assert handle is not None
            handles.append(handle)
            if options.fence:
                ckpt.fence()
            before = list(state["tree"].values())
            for _ in range(STEPS_BEHIND):
                state["tree"] = jax.block_until_ready(update(state["tree"]))
            behind += not handle.status().captured
            held += not all(array.is_deleted() for array in before)
    torn = sum(isinstance(each.durable.exception(), df.TornCaptureError) for each in handles)
    with df.Checkpointer(run) as ckpt:
        steps = ckpt.steps()
        wrong = sum(not is_right(ckpt.load(step)["tree"], step - STEPS_BEHIND) for step in steps)
    counts = {"checkpoints": len(steps), "wrong": wrong, "torn": torn}
    return {**counts, "behind": behind, "held": held}


def is_right(tree: dict[str, Any], updates: int) -> bool:
    return all((tree[f"a{i}"] == 1000.0 * i + updates).all() for i in range(ARRAYS))


def parse() -> argparse.Namespace:
    parser = make_parser(MODULE, __doc__)
    parser.add_argument("--snapshots", type=int, default=200)
    parser.add_argument("--bare", action="store_true", help="the negative control")
    parser.add_argument("--replicated", action="store_true", help="over 8 devices: one is held")
    parser.add_argument("--fence", action="store_true", help="before each step behind a save")
    return parser.parse_args()


def with_environment() -> None:
    """Starts this process anew: fail points and devices are set when the packages are loaded."""
    if os.environ.get("DEEPFREEZE_FAIL") != SLOW_COPIER:
        environment = {**os.environ, "DEEPFREEZE_FAIL": SLOW_COPIER, "XLA_FLAGS": DEVICES}
        os.execve(sys.executable, [sys.executable, "-m", MODULE, *sys.argv[1:]], environment)


def main() -> int:
    options = parse()
    with_environment()
    announce_seed(options)  # nothing is drawn; it keeps the report's form
    if options.bare:
        from deepfreeze.frameworks.jax import arrays as jax_arrays

        jax_arrays._joined = bare_array
    with scratch(options, "donation") as place:
        found = snapshots(Path(place) / "run", options.snapshots, options)
    text = ", ".join(f"{number} {name}" for name, number in found.items())
    faults = [name for name in ("torn", "wrong") if found[name]]
    if found["checkpoints"] != options.snapshots:
        faults.append(f"{options.snapshots} saves gave {found['checkpoints']} checkpoints")
    return conclude(options, text, found, faults)


if __name__ == "__main__":
    sys.exit(main())
