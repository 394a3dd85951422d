"""All clients that are compared; DeepFreeze's own among them."""

from __future__ import annotations

import importlib
import json
import tempfile
import urllib.request
from pathlib import Path

from .peers import Boto3, DcpConnector, DcpFsspec, Obstore, Peer, PyArrow, S3Fs, endpoint
from .sink import COUNTS
from .state import State, bytes_of


class DeepFreeze(Peer):
    """As a training has it: a run in `near`, and the store as a tier of it."""

    packages = ("deepfreeze-checkpoint",)
    one_tensor = True

    def tier(self, *below: str) -> object:
        return self.df.tier("/".join((f"s3://{self.bucket}/{self.prefix}", *below)))

    def connect(self) -> None:
        """A run of its own: the libraries and threads of a first one are not measured."""
        self.df = importlib.import_module("deepfreeze")
        torch = importlib.import_module("torch")
        with (
            tempfile.TemporaryDirectory(dir=self.near.parent) as place,
            self.df.Checkpointer(f"{place}/run", tiers=[self.tier("small")]) as ckpt,
        ):
            ckpt.save(1, {"small": torch.zeros(5)}).wait("durable")

    def upload(self, file: Path, state: State) -> None:
        """Opens the run, probes the store, flushes all blocks, and waits until it is committed."""
        with self.df.Checkpointer(self.near, tiers=[self.tier("run")]) as ckpt:
            ckpt.drain()
            (status,) = ckpt.tier_status()
        if status.committed != 1:
            raise ValueError(f"{status.committed} checkpoints were flushed")

    def download(self, state: State, size: int) -> int:
        """From the store alone, into live tensors, every block verified."""
        with tempfile.TemporaryDirectory(dir=self.near.parent) as place:
            run, tiers = f"{place}/run", [self.tier("run")]
            with self.df.Checkpointer(run, tiers=tiers, read_only=True) as ckpt:
                ckpt.restore(state)
        return bytes_of(state)

    def load_one(self, state: State, name: str) -> None:
        with (
            tempfile.TemporaryDirectory(dir=self.near.parent) as place,
            self.df.Checkpointer(f"{place}/run", tiers=[self.tier("run")]) as ckpt,
        ):
            state[name] = ckpt.load(keys=[name])[name]


CLIENTS: dict[str, type[Peer]] = {
    "DeepFreeze": DeepFreeze,
    "pyarrow": PyArrow,
    "obstore": Obstore,
    "boto3": Boto3,
    "s3fs": S3Fs,
    "dcp, s3torchconnector": DcpConnector,
    "dcp, fsspec": DcpFsspec,
}
OWN = "DeepFreeze"


def counts() -> dict[str, int]:
    """Of the sink, so far: bytes `received` and `sent` in bodies, and `requests`."""
    with urllib.request.urlopen(endpoint() + COUNTS) as answer:
        found: dict[str, int] = json.loads(answer.read())
    return found
