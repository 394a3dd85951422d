"""How much of a checkpoint does one of N ranks read? `python -m lab.experiments.ranks.slices`.

The state is saved whole; then each rank of a sharded job would read its rows of every tensor, as
fully_shard() cuts them. Bytes are those that the reading process asks the kernel for, headers and
all: /proc/self/io, with the same reads by pread everywhere.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

import deepfreeze as df
from lab.experiments.ranks.options import by_layout, carry_out, make_parser
from lab.experiments.ranks.sharing import chosen_layout, state_of

Box = tuple[list[int], list[int]]
ITEM_BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "U8": 1}


def read_bytes() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("rchar"))


def rows_of(shape: tuple[int, ...], index: int, count: int) -> Box | None:
    """Where rank `index` of `count` has its rows; None where it has none."""
    if not shape:
        return ([], []) if index == 0 else None
    each = -(-shape[0] // count)
    first, end = min(shape[0], index * each), min(shape[0], (index + 1) * each)
    if first == end:
        return None
    return ([first] + [0] * (len(shape) - 1), [end - first, *shape[1:]])


def read_slice(run: Path, index: int, count: int) -> tuple[int, int]:
    """Bytes wanted, and bytes read for them."""
    before = read_bytes()
    info = df._core.list_checkpoints(str(run))[0]
    opened = df._core.open_checkpoint(info)
    targets, buffers = [], []
    for spec in opened.tensors():
        box = rows_of(spec.shape, index, count)
        if box is None:
            continue
        item = ITEM_BYTES[spec.dtype]
        buffer = np.empty(int(np.prod(box[1], dtype=np.int64)) * item, np.uint8)
        buffers.append(buffer)
        whole = None if not spec.shape else box
        targets.append(df._core.Target(spec.key, buffer.ctypes.data, buffer.nbytes, whole))
    opened.read(targets, True)
    return sum(buffer.nbytes for buffer in buffers), read_bytes() - before


def measure(name: str, run: Path, counts: list[int]) -> dict[str, Any]:
    layout = chosen_layout(name)
    with df.Checkpointer(run, ranks=None) as ckpt:
        handle = ckpt.save(1, state_of(layout))
        assert handle is not None
        handle.wait("durable")
    found = {}
    for count in counts:
        slices = [read_slice(run, index, count) for index in range(count)]
        found[count] = [
            {"wanted": wanted, "read": read, "of_even_share": read * count / layout.nbytes}
            for wanted, read in slices
        ]
    return {"layout": name, "bytes": layout.nbytes, "slices": found}


def show(result: dict[str, Any]) -> None:
    print(f"\n{result['layout']}: {result['bytes']:,} bytes; read by a rank, in 1/N of that")
    for count, slices in result["slices"].items():
        shares = [one["of_even_share"] for one in slices]
        read, wanted = (sum(one[what] for one in slices) for what in ("read", "wanted"))
        print(
            f"  N = {count}: {min(shares):.3f} to {max(shares):.3f}; all together"
            f" {read / result['bytes']:.3f} of the state, {read / wanted:.3f} of what was wanted"
        )


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser("slices", __doc__)
    parser.add_argument("--layout", nargs="+", default=["nt3", "resnet50"])
    parser.add_argument("--counts", nargs="+", type=int, default=[2, 4, 8])
    options = parser.parse_args(arguments)
    if options.smoke:
        options.layout = ["smoke"]
    return options


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    os.environ["DEEPFREEZE_IO"] = "buffered"

    def work(place: Path) -> dict[str, Any]:
        return by_layout(options, lambda name: measure(name, place / name, options.counts), show)

    return carry_out(options, work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
