"""Checkpoints to an S3 store and back, beside other clients: `python -m lab.experiments.stores`.

In each round every client uploads a checkpoint and gets one back, each time in a new process that
has connected before the clock starts, in an order shuffled anew by the printed seed. Told are GB/s,
and the processor time of the client's process per GB; those of the others over DeepFreeze's are
ratios of the same round. Against the sink also: how many bytes the store sends for one tensor.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lab.measure import machine
from lab.measure.program import try_to_ask

from .clients import CLIENTS, OWN
from .servers import SERVERS, Server
from .table import markdown, publish

TRIAL = "lab.experiments.stores.trial"
WAYS = ("upload", "download")
MEMORY = Path("/dev/shm")


class Bench:
    """One server, and the checkpoint in `place`."""

    def __init__(self, server: Server, place: Path, options: argparse.Namespace) -> None:
        self.server, self.place, self.options = server, place, options
        self.size = options.sizes[server.name]
        self.rows: list[dict[str, Any]] = []
        self.prefixes = 0

    def ask(self, client: str, what: str, bucket: str, prefix: str) -> dict[str, Any]:
        request = {
            "client": client, "what": what, "bucket": bucket, "prefix": prefix,
            "near": str(self.place / "near"), "size": self.size, "seed": self.options.seed,
        }  # fmt: skip
        python = Path(sys.executable)
        return try_to_ask(python, TRIAL, request, self.place, variables=self.server.variables)

    def new_prefix(self) -> str:
        self.prefixes += 1
        return f"place-{self.prefixes}"

    def run(self) -> None:
        told = self.ask(OWN, "prepare", "", "")
        if "error" in told:
            raise SystemExit(f"stores: no checkpoint: {told['error']}")
        keeps = self.server.uploads == self.server.downloads
        there = {} if keeps else dict(self.staged())
        order = random.Random(self.options.seed)
        for number in range(self.options.rounds):
            for client in order.sample(self.options.clients, len(self.options.clients)):
                for what in WAYS:
                    if what in WAYS[:1] or client in there:
                        self.try_one(number, client, what, there)
        if self.server.name == "sink":
            for client, prefix in there.items():
                if CLIENTS[client].one_tensor:
                    told = self.ask(client, "one", self.server.downloads, prefix)
                    self.note(0, client, "one", told)

    def staged(self) -> Iterator[tuple[str, str]]:
        """Checkpoints to download later; not timed."""
        for client in self.options.clients:
            prefix = self.new_prefix()
            told = self.ask(client, "upload", self.server.downloads, prefix)
            if "error" in told:
                self.note(0, client, "upload", told)
            else:
                yield client, prefix

    def try_one(self, number: int, client: str, what: str, there: dict[str, str]) -> None:
        if what == "upload":
            bucket, prefix = self.server.uploads, self.new_prefix()
        else:
            bucket, prefix = self.server.downloads, there[client]
        told = self.ask(client, what, bucket, prefix)
        self.note(number, client, what, told)
        if bucket == self.server.downloads and "error" not in told:
            there[client] = prefix
        time.sleep(self.options.settle)

    def note(self, number: int, client: str, what: str, told: dict[str, Any]) -> None:
        row = {"server": self.server.name, "round": number, "client": client, "what": what, **told}
        self.rows.append(row)
        print(shown(row), file=sys.stderr, flush=True)


def shown(row: dict[str, Any]) -> str:
    about = f"{row['server']} {row['round']} {row['client']} {row['what']}"
    if "error" in row:
        return f"{about}: {row['error']}"
    if "seconds" not in row:
        return f"{about}: {row['fetched'] / row['bytes']:.3f}"
    cpu = row["user_seconds"] + row["system_seconds"]
    size = row["bytes"] / 1e9
    return f"{about}: {size / row['seconds']:.2f} GB/s, {cpu / size:.3f} CPU s/GB"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("stores", description=__doc__)
    parser.add_argument("--servers", nargs="+", choices=SERVERS, default=list(SERVERS))
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=list(CLIENTS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--megabytes", type=int, default=1024, help="of state, for the sink")
    parser.add_argument("--seaweed-megabytes", type=int, default=96)
    parser.add_argument("--settle", type=float, default=0.5, help="seconds between trials")
    parser.add_argument("--seed", type=int, default=20261128)
    parser.add_argument("--directory", type=Path, default=MEMORY, help="of the near tier")
    parser.add_argument("--smoke", action="store_true", help="8 MB, one round, the sink, our own")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args(arguments)
    if options.smoke:
        options.servers, options.clients = ["sink"], [OWN]
        options.rounds, options.megabytes, options.settle = 1, 8, 0.0
    options.sizes = {"sink": options.megabytes << 20, "SeaweedFS": options.seaweed_megabytes << 20}
    return options


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    rows: list[dict[str, Any]] = []
    about = machine.describe(options.directory, 1)
    with ExitStack() as closed:
        for name in options.servers:
            place = Path(closed.enter_context(
                tempfile.TemporaryDirectory(prefix="stores-", dir=options.directory)))  # fmt: skip
            try:
                server = closed.enter_context(SERVERS[name]())
            except LookupError as error:
                print(f"{name}: {error}", file=sys.stderr)
                continue
            bench = Bench(server, place, options)
            bench.run()
            rows += bench.rows
            closed.pop_all().close()
    about |= {"load_average_after": os.getloadavg()[0]}
    told = {"command": command(arguments), "machine": about, "rows": rows}
    publish(options, told, markdown(told))
    return 1 if any("error" in row for row in rows if row["client"] == OWN) else 0


def command(arguments: Sequence[str]) -> str:
    return " ".join(["python -m lab.experiments.stores", *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
