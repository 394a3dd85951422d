"""Does a process's first square root come out as its second? With and without df.determinism().

Some MKLs compute one thread's part of their first call less precisely, in some processes (pytorch
issue 188792): a resumed training then ends with other bits than one that was never stopped. Each
process here is new, multiplies once, takes the same roots twice and compares all bits.

    python -m tests.e2e.first_calls --processes 1000

Prints how many differed without and with it; exit status 1 if one with it did.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback

import torch

import deepfreeze as df

from .command import conclude

VALUES = 9408  # enough for torch to share them among threads
FAILED = 2  # a process's exit status, else whether its roots differ
SIDE = 600  # of the product that comes before, as in a training


def differs(deterministic: bool) -> bool:
    """In this process, which has computed nothing yet."""
    if deterministic:
        df.determinism(1)
    torch.rand(SIDE, SIDE) @ torch.rand(SIDE, SIDE)
    values = torch.rand(VALUES)
    return not torch.equal(values.sqrt(), values.sqrt())


def differs_in_a_new_process(deterministic: bool) -> bool:
    """Forks, as importing torch takes a second; nothing has been computed here yet."""
    process = os.fork()
    if process == 0:
        status = FAILED
        try:
            status = int(differs(deterministic))
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if status not in (0, 1):
        raise RuntimeError(f"first calls: a process ended with {status}")
    return status == 1


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.e2e.first_calls", description=__doc__)
    parser.add_argument("--processes", type=int, default=100, help="of each kind")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    torch.set_num_threads(2)
    torch.use_deterministic_algorithms(True)  # imports for a second: once, not in each process
    without, with_it = (
        sum(differs_in_a_new_process(kind) for _ in range(options.processes))
        for kind in (False, True)
    )
    text = (
        f"first calls: of {options.processes} processes each, {without} differed without "
        f"df.determinism() and {with_it} with it"
    )
    figures = {"processes": options.processes, "without": without, "with": with_it}
    faults = [f"{with_it} processes differed with df.determinism()"] if with_it else []
    return conclude(options, text, figures, faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
