"""The process that is measured: one client, one upload or download, once it is connected.

Its processor time is that of the whole process and of its threads, from getrusage(); the server is
another process.
"""

from __future__ import annotations

import importlib
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.programs.answer import carry_out

from . import clients
from .peers import Peer
from .state import bytes_of, is_same, state_of


@dataclass(frozen=True)
class Asked:
    client: str  # of clients.CLIENTS
    what: str  # prepare, upload, download, one
    bucket: str
    prefix: str
    near: str  # a run with one checkpoint, which clients of files take the file of
    size: int
    seed: int


def work(request: dict[str, Any]) -> dict[str, Any]:
    asked = Asked(**request)
    return OF[asked.what](asked)


def save_near(asked: Asked) -> dict[str, Any]:
    """The checkpoint that is uploaded, as DeepFreeze leaves it."""
    df = importlib.import_module("deepfreeze")
    state = state_of(asked.size, asked.seed)
    with df.Checkpointer(asked.near) as ckpt:
        ckpt.save(1, state).wait("durable")
    return {"bytes": bytes_of(state), "file_bytes": file_of(asked).stat().st_size}


def upload(asked: Asked) -> dict[str, Any]:
    client = connected(asked)
    state = state_of(asked.size, asked.seed)
    return measured(lambda: client.upload(file_of(asked), state)) | {"bytes": bytes_of(state)}


def download(asked: Asked) -> dict[str, Any]:
    client = connected(asked)
    state, saved = state_of(asked.size, 0), state_of(asked.size, asked.seed)
    size = file_of(asked).stat().st_size
    got = 0

    def act() -> None:
        nonlocal got
        got = client.download(state, size)

    found = measured(act) | {"bytes": bytes_of(state)}
    fills_state = got != size
    if got < bytes_of(state) or (fills_state and not is_same(state, saved)):
        raise ValueError(f"{got} bytes came back, of {size}, or other ones")
    return found


def load_one(asked: Asked) -> dict[str, Any]:
    """The caller counts the bytes that the server sends."""
    client = connected(asked)
    state, saved = state_of(asked.size, 0), state_of(asked.size, asked.seed)
    name = list(state)[len(state) // 2 // 2 * 2]  # a large one in the middle
    before = served()
    client.load_one(state, name)
    fetched = served() - before
    if not is_same(state, {name: saved[name]}):
        raise ValueError("another tensor came back")
    return {"fetched": fetched, "bytes": state[name].nbytes}


def served() -> int:
    return clients.counts()["sent"]


def connected(asked: Asked) -> Peer:
    client = clients.CLIENTS[asked.client](asked.bucket, asked.prefix, Path(asked.near))
    client.connect()
    return client


def file_of(asked: Asked) -> Path:
    (found,) = Path(asked.near).glob("step-*/*.safetensors")
    return found


def measured(act: Callable[[], None]) -> dict[str, float]:
    load = os.getloadavg()[0]
    before = resource.getrusage(resource.RUSAGE_SELF)
    began = time.perf_counter()
    act()
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_SELF)
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    return {"seconds": seconds, "user_seconds": user, "system_seconds": system, "load": load}


OF = {"prepare": save_near, "upload": upload, "download": download, "one": load_one}

if __name__ == "__main__":
    sys.exit(carry_out(sys.argv[1:], work))
