"""TensorFlow's workers on this machine: `python -m lab.measure.ranks_workers COUNT MODULE …`.

Each is `python -m MODULE …` with TF_CONFIG, which names a port of the loopback for each of them.
The first that fails ends all.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

POLL_SECONDS = 0.05
HOST = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """That nobody has at this moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [int(one.getsockname()[1]) for one in sockets]


def configurations(count: int) -> Iterator[str]:
    cluster = {"worker": [f"{HOST}:{port}" for port in free_ports(count)]}
    for index in range(count):
        yield json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})


def wait(processes: list[subprocess.Popen[bytes]]) -> int:
    """0 where all have ended well; else that of the first that has not."""
    while True:
        statuses = [process.poll() for process in processes]
        failed = [status for status in statuses if status]
        if failed or None not in statuses:
            return failed[0] if failed else 0
        time.sleep(POLL_SECONDS)


def main(arguments: list[str]) -> int:
    count, command = int(arguments[0]), [sys.executable, "-m", *arguments[1:]]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for configuration in configurations(count):
            own = {**os.environ, "TF_CONFIG": configuration}
            processes.append(subprocess.Popen(command, env=own))
        return abs(wait(processes))
    except KeyboardInterrupt:
        return 130
    finally:
        for process in processes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
