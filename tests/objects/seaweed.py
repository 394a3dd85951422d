"""SeaweedFS, a real object store, on loopback: a directory, ports, keys and a bucket of its own.

It is ready when a GET of a known key answers. Its root answers before that, while reads still fail.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from .signed_client import Client, Keys

LEFT_OUT = "LEFT OUT: SeaweedFS is not installed (tools/requirements-store.txt)"
BUCKET = "deepfreeze-tests"
KNOWN_KEY = "is-ready"
READY_SECONDS_MAX = 90.0  # 3 to 9 on two cores
STARTS_MAX = 3  # another process may take a port before it does
LOG_LINES = 30  # of its end, in an error
END_WITH_US = ("setpriv", "--pdeathsig", "KILL")
PARTS = ("master", "volume", "filer", "s3")  # each has a port, and one for gRPC


class StoreError(Exception):
    """It did not start, or did not become ready; with the end of its log."""


def find_program() -> Path | None:
    """The one beside this Python, else the one on the PATH."""
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if beside.exists() else shutil.which("weed")
    return Path(found) if found else None


class Seaweed:
    """Started by `with`, and gone with all its data at the end of it."""

    def __init__(self, program: Path, ready_seconds_max: float = READY_SECONDS_MAX) -> None:
        self._program = program
        self._ready_seconds_max = ready_seconds_max
        self._scratch = tempfile.TemporaryDirectory(prefix="df-seaweed-")
        self._directory = Path(self._scratch.name)
        self._process: subprocess.Popen[bytes] | None = None
        self._ports: dict[str, int] = {}
        self._places = 0
        self.keys = Keys(f"AKIA{secrets.token_hex(8).upper()}", secrets.token_hex(20))
        self.bucket = BUCKET

    @property
    def port(self) -> int:
        return self._ports["s3.port"]

    def client(self, port: int | None = None) -> Client:
        """`port` may be that of a proxy."""
        return Client(self.port if port is None else port, self.keys, self.bucket)

    def new_prefix(self) -> str:
        """A place in the bucket that nobody else uses."""
        self._places += 1
        return f"place-{self._places}"

    def kill(self) -> None:
        """SIGKILL: its own end takes half a minute."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        for socket_file in self._unix_sockets():
            socket_file.unlink(missing_ok=True)

    def restart(self) -> None:
        """On the same data and ports; returns when it is ready."""
        self.kill()
        self._start()
        self._wait_until([("GET", b"")])

    def __enter__(self) -> Seaweed:
        try:
            self._start_anew()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._scratch.cleanup()

    def _start_anew(self) -> None:
        for start in range(1, STARTS_MAX + 1):
            self._ports = _free_ports()
            self._start()
            try:
                self._wait_until([("PUT bucket", b""), ("PUT", b"ready"), ("GET", b"")])
                return
            except StoreError as error:
                if "address already in use" not in str(error) or start == STARTS_MAX:
                    raise
                self.kill()

    def _start(self) -> None:
        (self._directory / "data").mkdir(exist_ok=True)
        identity = {
            "name": "trainer",
            "credentials": [{"accessKey": self.keys.access, "secretKey": self.keys.secret}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        config = self._directory / "s3.json"
        config.write_text(json.dumps({"identities": [identity]}))
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*END_WITH_US, self._program, *_options(self._directory, config, self._ports)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                # It writes logs to a temporary directory, too.
                env={**os.environ, "TMPDIR": str(self._directory)},
            )  # fmt: skip

    def _wait_until(self, steps: Sequence[tuple[str, bytes]]) -> None:
        """Each request is repeated until it works."""
        until = time.monotonic() + self._ready_seconds_max
        client = Client(self.port, self.keys, self.bucket, seconds_max=10.0)
        for request, body in steps:
            method, _, what = request.partition(" ")
            answer = "none"
            while answer not in ("200", "409"):  # 409: the bucket is there
                if self._process is None or (status := self._process.poll()) is not None:
                    raise StoreError(f"it ended with status {status}\n{self._end_of_log()}")
                if time.monotonic() > until:
                    seconds = f"{self._ready_seconds_max:.0f} s"
                    why = f"not ready after {seconds}, {request}: {answer}"
                    raise StoreError(f"{why}\n{self._end_of_log()}")
                try:
                    answer = str(client.send(method, "" if what else KNOWN_KEY, None, body).status)
                except (OSError, http.client.HTTPException) as error:
                    answer = repr(error)
                time.sleep(0.02)

    def _end_of_log(self) -> str:
        lines = (self._directory / "log").read_text(errors="replace").splitlines()
        return "\n".join(lines[-LOG_LINES:])

    def _unix_sockets(self) -> list[Path]:
        """It makes them in /tmp, with all options, and does not remove them."""
        names = [f"{part}-grpc-{self._ports.get(f'{part}.port.grpc')}" for part in PARTS]
        names += [f"{part}-{self._ports.get(f'{part}.port')}" for part in PARTS]
        return [Path("/tmp") / f"seaweedfs-{name}.sock" for name in names]


@contextmanager
def started() -> Iterator[Seaweed]:
    """Skips the test if the program is not here."""
    program = find_program()
    if program is None:
        pytest.skip(LEFT_OUT)
    with Seaweed(program) as store:
        yield store


def _options(directory: Path, config: Path, ports: dict[str, int]) -> list[str]:
    return [
        *("server", f"-dir={directory / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
        *(f"-{name}={port}" for name, port in ports.items()),
        *("-filer", "-s3", f"-s3.config={config}", "-s3.autoCreateBucket=false"),
        *("-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false"),
        *("-master.volumeSizeLimitMB=256", "-volume.max=20"),
        "-master.electionTimeout=1s",  # of 10: a restart takes 3 to 7 s instead of 15 to 22
    ]


def _free_ports() -> dict[str, int]:
    """Below those that the kernel gives to connections: one of them could take ours meanwhile."""
    names = [f"{part}.port{kind}" for part in PARTS for kind in ("", ".grpc")]
    kernels = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    end = max(20_000, int(kernels.split()[0]))
    draw = random.SystemRandom()
    ports: dict[str, int] = {}
    with ExitStack() as held:
        while len(ports) < len(names):
            listening = held.enter_context(socket.socket())
            try:
                listening.bind(("127.0.0.1", draw.randrange(10_000, end)))
            except OSError:
                continue
            ports[names[len(ports)]] = listening.getsockname()[1]
    return ports
