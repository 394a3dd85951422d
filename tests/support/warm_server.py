"""The process from which warm_python.py has programs forked: `python -m tests.support.warm_server`.

1. It imports its modules and waits for orders. It uses nothing of them: no thread is started.
2. For each order it forks a process that forks the program and ends: the program is then a child
   of the process that gave the order, as if that had started it.
3. The program waits for that, takes the order's descriptors, directory and environment, and runs
   in this interpreter, which ends with it as ever.
"""

from __future__ import annotations

import builtins
import gc
import importlib
import json
import os
import runpy
import socket
import sys
import types
from collections.abc import Sequence

from tests.support import warm_python
from tests.support.warm_python import ORDER_BYTES_MAX, Order, Server, socket_pair


def serve(orders: socket.socket) -> tuple[Order, list[int]]:
    """Returns in new programs alone. The server ends with the process that gives orders."""
    while True:
        text, descriptors, _, _ = socket.recv_fds(orders, ORDER_BYTES_MAX, 3)
        if not text:
            os._exit(0)
        if is_new_program():
            return Order(**json.loads(text)), descriptors
        for descriptor in descriptors:
            os.close(descriptor)


def is_new_program() -> bool:
    """True in a new process, once it is a child of the process that gives orders."""
    adopted, adoption = os.pipe()
    between = os.fork()
    if between == 0:
        if os.fork() != 0:
            os._exit(0)
        os.close(adoption)
        if not os.read(adopted, 1):
            os._exit(1)  # the server has died
        os.close(adopted)
        return True
    os.waitpid(between, 0)  # with its end the program has its new parent
    os.write(adoption, b"!")
    os.close(adopted)
    os.close(adoption)
    return False


def take_over(order: Order, descriptors: Sequence[int], orders: socket.socket) -> None:
    """Answers as soon as all is as the order has it."""
    with orders:
        try:
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
                os.close(descriptor)
            if order.new_session:
                os.setsid()
            os.chdir(order.directory)
        except OSError as error:
            orders.send(str(error).encode())
            os._exit(1)
        os.environ.clear()
        os.environ.update(order.environment)
        orders.send(str(os.getpid()).encode())
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()  # as at its import; Python's own generator does this by itself


def next_server(modules: Sequence[str], environment: dict[str, str]) -> socket.socket | None:
    """In a forked server, as unused as this process is: its orders. In the program: None."""
    ours, theirs = socket_pair()
    if os.fork() != 0:
        theirs.close()
        warm_python.inherit(modules, environment, Server(ours))
        return None
    ours.close()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):  # a reader of the program's output waits for the program alone
        os.dup2(nowhere, stream)
    os.close(nowhere)
    return theirs


def execute(words: Sequence[str]) -> None:
    """As the interpreter itself does with these words."""
    option, text, *rest = words
    main = types.ModuleType("__main__")
    vars(main)["__builtins__"] = builtins
    sys.modules["__main__"] = main
    sys.argv = [option, *rest]
    sys.path[0] = os.getcwd() if option == "-m" else ""
    if option == "-m":
        runpy._run_module_as_main(text)  # type: ignore[attr-defined]
    else:
        exec(compile(text, "<string>", "exec"), vars(main))


def main(number: str, *modules: str) -> None:
    environment = dict(os.environ)
    orders: socket.socket | None = socket.socket(fileno=int(number))
    for module in modules:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    while orders is not None:
        order, descriptors = serve(orders)
        take_over(order, descriptors, orders)
        orders = next_server(modules, environment) if order.serves else None
    execute(order.words)


if __name__ == "__main__":
    main(*sys.argv[1:])
