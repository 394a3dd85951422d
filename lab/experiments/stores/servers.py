"""The stores that clients are measured against, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lab.writers.menu import ROOT
from tests.objects.seaweed import LEFT_OUT, Seaweed, find_program

from .sink import KEPT, SINK

MODULE = "lab.experiments.stores.sink"


@dataclass(frozen=True)
class Server:
    """`uploads` is the bucket that uploads are timed with; the other one gives all back."""

    name: str
    port: int
    uploads: str
    downloads: str
    keys: Any = field(default=("test", "testtest"), repr=False)

    @property
    def variables(self) -> dict[str, str]:
        """By which every client finds it."""
        access, secret = self.keys
        return {
            "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{self.port}",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": access,
            "AWS_SECRET_ACCESS_KEY": secret,
            # Threads of libraries that compute would count as the client's.
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }


@contextmanager
def sink() -> Iterator[Server]:
    process = subprocess.Popen(
        [sys.executable, "-m", MODULE],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        yield Server("sink", int(process.stdout.readline()), SINK, KEPT)
        process.stdin.close()


@contextmanager
def seaweed() -> Iterator[Server]:
    """LookupError: it is not installed."""
    program = find_program()
    if program is None:
        raise LookupError(LEFT_OUT)
    with Seaweed(program) as store:
        keys = (store.keys.access, store.keys.secret)
        yield Server("SeaweedFS", store.port, store.bucket, store.bucket, keys)


SERVERS = {"sink": sink, "seaweed": seaweed}
