"""A run with a tier in the store: its state at each step, and the bytes on both sides."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import deepfreeze as df
from examples.digest import tensor_bytes
from tests.e2e.command import scratch

from .fault_proxy import FaultProxy
from .seaweed import Seaweed
from .signed_client import Client

SECONDS = 60.0  # for waits that must not hang
KEPT = 3
LARGE = 18 << 20  # bytes: one part of 16 MiB, and a second one

Values = dict[str, bytes]


def state_at(step: int, size: int = LARGE) -> dict[str, Any]:
    draw = torch.Generator().manual_seed(step)
    large = torch.randint(-(1 << 30), 1 << 30, (size // 4,), dtype=torch.int32, generator=draw)
    small = {f"t{n}": torch.randn((n + 1, 33), generator=draw) for n in range(5)}
    return {"large": large, **small, "count": torch.tensor([step])}


def values_of(state: dict[str, Any]) -> Values:
    return {key: tensor_bytes(value) for key, value in state.items()}


@dataclass(frozen=True)
class StoredRun:
    """One prefix of the bucket, reached through a proxy, and the near directories below `place`."""

    store: Seaweed
    proxy: FaultProxy
    prefix: str
    place: Path

    def environment(self) -> dict[str, str]:
        """As a user names a store: by the variables of AWS's own tools."""
        return {
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": self.store.keys.access,
            "AWS_SECRET_ACCESS_KEY": self.store.keys.secret,
        }

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.proxy.port}"

    @property
    def url(self) -> str:
        return f"s3://{self.store.bucket}/{self.prefix}"

    @property
    def near(self) -> Path:
        return self.place / "near"

    @property
    def client(self) -> Client:
        """Not through the proxy."""
        return self.store.client()

    def opened(
        self,
        near: str = "near",
        credentials: Callable[[], object] | None = None,
        endpoint: str | None = None,
        agent: Path | None = None,
    ) -> df.Checkpointer:
        keep = df.keep(last=KEPT)
        tier = df.tier(self.url, keep=keep, endpoint=endpoint, credentials=credentials)
        return df.Checkpointer(self.place / near, keep=keep, tiers=[tier], agent=agent)

    def save(self, *steps: int, size: int = LARGE) -> None:
        """Goes on with the run. Returns when the store has them."""
        with self.opened() as ckpt:
            ckpt.restore(state_at(0, size))
            for step in steps:
                handle = ckpt.save(step, state_at(step, size))
                assert handle is not None
                handle.wait("durable", SECONDS)

    def restored(self, near: str = "elsewhere", size: int = LARGE) -> tuple[int | None, Values]:
        """By a machine with another near directory: an empty one, unless it is named."""
        state = state_at(0, size)
        with self.opened(near) as ckpt:
            step = ckpt.restore(state)
            if step is not None:
                assert ckpt.last_restore is not None
                assert ckpt.last_restore.step == step
        return step, values_of(state)

    def objects(self) -> dict[str, bytes]:
        """By their names within the run."""
        names = self.client.names(f"{self.prefix}/")
        return {name[len(self.prefix) + 1 :]: self.client.send("GET", name).body for name in names}

    def files(self) -> dict[str, bytes]:
        paths = [path for path in self.near.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.near)): path.read_bytes() for path in paths}

    def assert_whole(self) -> None:
        """The store has the same files as the near directory, and no upload is left open."""
        assert self.objects() == self.files()
        assert self.client.open_uploads(f"{self.prefix}/") == []


@contextmanager
def proxied_store(
    options: argparse.Namespace, name: str, program: Path
) -> Iterator[tuple[Path, Seaweed, FaultProxy]]:
    """A scratch directory, a store, and the proxy before it, which the environment names then."""
    with (
        scratch(options, name) as place,
        Seaweed(program) as store,
        FaultProxy(store.port) as proxy,
    ):
        os.environ.update(StoredRun(store, proxy, "", Path(place)).environment())
        yield Path(place), store, proxy
