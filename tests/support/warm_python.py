"""Programs in Python that begin with their imports done: `run()` and `start()` for subprocess's.

torch takes an interpreter two seconds, and a fork milliseconds. A server for each set of modules
has imported them and used nothing of them; warm_server.py forks programs from it. They are children
of the caller, as fresh ones: with exit statuses, signals and groups.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# An optimizer's first use imports torch._dynamo.
TORCH = ("torch", "torch._dynamo")
RANKS = (*TORCH, "torch.distributed", "torch.distributed.fsdp", "torch.distributed.tensor")
ORDER_BYTES_MAX = 1 << 17
PR_SET_CHILD_SUBREAPER = 36
# Libraries read such variables once: programs for which they differ have different servers.
READ_AT_START = ("PYTHON", "LD_", "OMP_", "KMP_", "MKL_", "OPENBLAS_", "TORCH", "PYTORCH_", "CUDA_",
                 "JAX_", "XLA_", "TF_", "KERAS_", "LANG", "LC_", "MALLOC_", "GLIBC_")  # fmt: skip


class WarmError(Exception):
    """A program of this kind, or in this directory, is not started; or a server has ended."""


@dataclass(frozen=True)
class Order:
    """One program; its three standard descriptors come beside it."""

    words: Sequence[str]  # after the interpreter's name: "-c", a text, ... or "-m", a module, ...
    directory: str
    environment: Mapping[str, str]
    new_session: bool
    serves: bool  # it gets a server of its own, to start others


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """For orders, and the numbers of processes."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class Server:
    """The caller's end of one, which ends when this is closed."""

    def __init__(self, ours: socket.socket, process: subprocess.Popen[bytes] | None = None) -> None:
        self._ours = ours
        self._process = process
        self._alone = threading.Lock()  # an answer belongs to the order before it

    @classmethod
    def begun(cls, modules: Sequence[str], environment: Mapping[str, str]) -> Server:
        ours, theirs = socket_pair()
        command = [sys.executable, "-m", "tests.support.warm_server", str(theirs.fileno())]
        process = subprocess.Popen(
            [*command, *modules], cwd=ROOT, env=environment, pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        theirs.close()
        return cls(ours, process)

    def start(self, order: Order, descriptors: Sequence[int]) -> int:
        """The number of a new process, which is a child of this one."""
        with self._alone:
            _adopt(True)  # the program is forked twice: its parent ends, and this process has it
            try:
                socket.send_fds(self._ours, [json.dumps(vars(order)).encode()], descriptors)
                answer = self._ours.recv(ORDER_BYTES_MAX)
            finally:
                _adopt(False)
        if not answer.isdigit():
            raise WarmError(answer.decode() or "the server has ended")
        return int(answer)

    def close(self) -> None:
        self._ours.close()
        if self._process is not None:
            self._process.wait()


Key = tuple[tuple[str, ...], frozenset[tuple[str, str]], str]
_servers: dict[Key, Server] = {}
os.register_at_fork(after_in_child=_servers.clear)  # they are the parent's


@atexit.register
def _close_all() -> None:
    for server in _servers.values():
        server.close()


def inherit(modules: Sequence[str], environment: Mapping[str, str], server: Server) -> None:
    """For programs that start others."""
    _servers[_key(modules, environment)] = server


def server_for(modules: Sequence[str], environment: Mapping[str, str]) -> Server:
    """The one of this process, begun at its first use."""
    key = _key(modules, environment)
    if key not in _servers:
        _servers[key] = Server.begun(modules, environment)
    return _servers[key]


def _key(modules: Sequence[str], environment: Mapping[str, str]) -> Key:
    """A server has the mounts that its starter had."""
    read = (pair for pair in environment.items() if pair[0].startswith(READ_AT_START))
    return tuple(modules), frozenset(read), os.readlink("/proc/self/ns/mnt")


class Program(subprocess.Popen[Any]):
    """A Popen whose process is forked instead of executed."""

    def __init__(
        self, command: Sequence[str], modules: Sequence[str], serves: bool, **options: Any
    ) -> None:
        self._modules = modules
        self._serves = serves
        super().__init__(command, **options)

    def _execute_child(
        self, args: Sequence[str], executable: object, preexec_fn: object, close_fds: bool,
        pass_fds: object, cwd: object, env: Mapping[str, str] | None, startupinfo: object,
        creationflags: int, shell: bool, *handles: Any,
    ) -> None:  # fmt: skip
        """Takes the place of Popen's own, whose arguments these are."""
        *pipes, _, _, _, _, _, new_session, _ = handles
        if shell or pass_fds or preexec_fn or args[0] != sys.executable:
            raise WarmError(f"not for {args}")
        words = [os.fspath(word) for word in args[1:]]
        directory = os.path.abspath(os.fsdecode(cwd or "."))  # type: ignore[arg-type]
        environment = dict(env or os.environ)
        order = Order(words, directory, environment, new_session, self._serves)
        given = (pipes[0], pipes[3], pipes[5])
        own = [number if fd == -1 else fd for number, fd in enumerate(given)]
        self.pid = server_for(self._modules, environment).start(order, own)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def start(
    command: Sequence[str],
    modules: Sequence[str] = TORCH,
    *,
    serves: bool = False,
    **options: Any,
) -> subprocess.Popen[str]:
    """`command` is [sys.executable, "-m" or "-c", ...]; its streams are text."""
    return Program(command, modules, serves, text=True, **options)


def run(
    command: Sequence[str],
    modules: Sequence[str] = TORCH,
    *,
    timeout: float | None = None,
    check: bool = False,
    capture_output: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """As subprocess.run()."""
    if capture_output:
        options.update(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with start(command, modules, **options) as process:
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except BaseException:  # the time limit, or an interrupt
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, stdout, stderr)
    if check:
        done.check_returncode()
    return done


def _adopt(orphans: bool) -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(orphans), 0, 0, 0)
