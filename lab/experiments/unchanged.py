"""Ways to save a training of which only a part changes: `python -m lab.experiments.unchanged`.

A checkpoint at every step: all of the state, or with a filter the part that trains. In each round
every saver trains for the same steps, in an order shuffled by a printed seed. Then four saves are
looked at one by one, and the last one is restored into another training. Exit status 1 if a
saver failed or a save was not committed, 130 if it was interrupted.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec

from lab.experiments.window import carry_out
from lab.measure.loop import Experiment
from lab.measure.options import interruptible, make_parser, positive
from lab.measure.partial import PartialSaves
from lab.networks.partial_workloads import PARTIAL
from lab.networks.torch_workloads import Workload
from lab.report import partial_table
from lab.writers.loop import Saver, Window, WindowLatency
from lab.writers.loop_partial import ADAPTERS, Rewriting
from lab.writers.loop_peers import DcpAsync, DcpSave, TorchSave

PROGRAM = "lab.experiments.unchanged"
SAVERS = {
    saver.name: saver
    for saver in (Window, WindowLatency, Rewriting, TorchSave, DcpSave, DcpAsync, *ADAPTERS)
}
FROZEN = ("peft", "tiny-peft", "lora", "tiny-lora", "frozen")  # a filter leaves something out
LARGE = ("frozen", "experts", "experts-in-turn", "dense-ema", "dense")
ROUNDS, SMOKE_ROUNDS = 3, 1
# Two saves find out which tensors do not change, one is as before, two write the copies of it.
WARM_UP_STEPS = 6
WITH_PEFT = find_spec("peft") is not None
PEFT_WORKLOADS = ("peft", "tiny-peft")


def workloads() -> dict[str, Workload]:
    """Those of PEFT if it is installed: build/frameworks-venv has it."""
    if not WITH_PEFT:
        return PARTIAL
    peft: dict[str, Workload] = importlib.import_module("lab.networks.peft_workloads").WORKLOADS
    return {**peft, **PARTIAL}


def parse(arguments: list[str]) -> argparse.Namespace:
    cores = len(os.sched_getaffinity(0))
    parser = make_parser(
        PROGRAM, __doc__, "weights, batches and orders", json="everything, raw rounds too",
        markdown="the tables",
    )  # fmt: skip
    names = [*PEFT_WORKLOADS, *PARTIAL]
    lora = "peft (lora where PEFT is not installed)"
    parser.add_argument(
        "--workload", nargs="+", choices=names, help=f"default: {lora}, {', '.join(LARGE)}"
    )
    parser.add_argument("--savers", nargs="+", choices=sorted(SAVERS), help="default: all")
    parser.add_argument("--rounds", type=positive, help=f"default: {ROUNDS}")
    parser.add_argument("--steps", type=positive, help="of a segment; default: by workload")
    parser.add_argument("--threads", type=positive, default=min(2, cores), help="of the training")
    parser.add_argument("--smoke", action="store_true", help="tiny and quick: does it work?")
    options = parser.parse_args(arguments)
    if not WITH_PEFT and set(PEFT_WORKLOADS) & set(options.workload or ()):
        parser.error(
            "PEFT is not installed here: `make frameworks`, build/frameworks-venv/bin/python"
        )
    return options


def chosen(options: argparse.Namespace) -> list[str]:
    if options.workload:
        return list(options.workload)
    if options.smoke:
        return ["tiny-peft" if WITH_PEFT else "tiny-lora"]
    return ["peft" if WITH_PEFT else "lora", *LARGE]


def savers_of(name: str, wanted: list[str] | None) -> tuple[type[Saver], ...]:
    """Without filters if nothing is frozen: they would leave nothing out."""
    found = [saver for saver in SAVERS.values() if wanted is None or saver.name in wanted]
    return (Saver, *(one for one in found if name in FROZEN or one not in ADAPTERS))


def experiments(options: argparse.Namespace, seed: int) -> Iterator[Experiment]:
    known = workloads()
    rounds = options.rounds or (SMOKE_ROUNDS if options.smoke else ROUNDS)
    for name in chosen(options):
        yield Experiment(
            name, known[name], 1, savers_of(name, options.savers), rounds,
            options.steps or known[name].steps, seed, 0.0 if options.smoke else 0.5,
            WARM_UP_STEPS, PartialSaves,
        )  # fmt: skip


@interruptible
def main(arguments: list[str]) -> int:
    options = parse(arguments)
    return carry_out(options, PROGRAM, lambda seed: experiments(options, seed), partial_table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
