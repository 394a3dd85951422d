"""torchrun, whose ranks are forked: `python -m tests.frameworks.forked_ranks RANKS SCRIPT ...`.

They share this process's imports; executed ranks would import all again. A forked rank also
ends without the end of an interpreter, in which a thread of gloo may abort it (torch 2.13).
"""

from __future__ import annotations

import runpy
import sys
import uuid

from torch.distributed.launcher.api import LaunchConfig, elastic_launch


def run_script(words: list[str]) -> None:
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")


def main(ranks: str, *words: str) -> None:
    """With the choices of `torchrun --standalone`."""
    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=int(ranks), run_id=str(uuid.uuid4()),
        rdzv_backend="c10d", rdzv_endpoint="localhost:0", max_restarts=0, start_method="fork",
    )  # fmt: skip
    elastic_launch(config, run_script)(list(words))


if __name__ == "__main__":
    main(*sys.argv[1:])
