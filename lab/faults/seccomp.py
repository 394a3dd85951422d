"""Calls of a process that another one lets go on or holds (seccomp_unotify(2), by libseccomp).

It needs no privilege. Calls are known by name: their numbers are the architecture's.
"""

import ctypes
import ctypes.util
import errno
import os
from collections.abc import Iterable
from functools import cache

ALLOW, HAND_OVER = 0x7FFF_0000, 0x7FC0_0000  # SCMP_ACT_ALLOW, SCMP_ACT_NOTIFY
GO_ON = 1  # SECCOMP_USER_NOTIF_FLAG_CONTINUE


class SeccompError(OSError):
    """This machine does not let calls be held."""


class Request(ctypes.Structure):
    """struct seccomp_notif: a call that waits."""

    _fields_ = (
        ("id", ctypes.c_uint64),
        ("thread", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("number", ctypes.c_int),
        ("architecture", ctypes.c_uint32),
        ("instruction", ctypes.c_uint64),
        ("arguments", ctypes.c_uint64 * 6),
    )


class Answer(ctypes.Structure):
    """struct seccomp_notif_resp."""

    _fields_ = (
        ("id", ctypes.c_uint64),
        ("value", ctypes.c_int64),
        ("error", ctypes.c_int32),
        ("flags", ctypes.c_uint32),
    )


@cache
def library() -> ctypes.CDLL:
    found = ctypes.util.find_library("seccomp")
    if found is None:
        raise SeccompError("libseccomp is not installed")
    one = ctypes.CDLL(found, use_errno=True)
    one.seccomp_init.restype = ctypes.c_void_p
    one.seccomp_init.argtypes = (ctypes.c_uint32,)
    one.seccomp_rule_add_array.argtypes = (
        ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p,
    )  # fmt: skip
    for name in ("seccomp_load", "seccomp_notify_fd", "seccomp_release"):
        getattr(one, name).argtypes = (ctypes.c_void_p,)
    for name in ("seccomp_notify_receive", "seccomp_notify_respond"):
        getattr(one, name).argtypes = (ctypes.c_int, ctypes.c_void_p)
    one.seccomp_api_get()  # looks what the kernel has; a process that only receives needs that, too
    return one


def numbers(names: Iterable[str]) -> dict[int, str]:
    """Those that this machine has."""
    found = {library().seccomp_syscall_resolve_name(name.encode()): name for name in names}
    return {number: name for number, name in found.items() if number >= 0}


def hand_over(calls: Iterable[int]) -> int:
    """From now on, those of this thread and of all that it starts.

    Returns the descriptor to `receive` them by, for another process: in this one each of them now
    waits for an answer. SeccompError.
    """
    one = library()
    filtered = one.seccomp_init(ALLOW)
    if filtered is None:
        raise SeccompError("seccomp_init")
    try:
        for number in calls:
            refuse(one.seccomp_rule_add_array(filtered, HAND_OVER, number, 0, None), "rule")
        refuse(one.seccomp_load(filtered), "load")
        return refuse(one.seccomp_notify_fd(filtered), "notify_fd")
    finally:
        one.seccomp_release(filtered)


def receive(requests: int) -> Request | None:
    """The next call; waits for one. None where whoever called has been killed or interrupted."""
    request = Request()
    result = library().seccomp_notify_receive(requests, ctypes.byref(request))
    if result == -errno.ECANCELED:
        return None
    refuse(result, "notify_receive")
    return request


def go_on(requests: int, request: Request) -> bool:
    """Lets it be carried out. False where whoever called has been killed or interrupted."""
    answer = Answer(id=request.id, flags=GO_ON)
    return bool(library().seccomp_notify_respond(requests, ctypes.byref(answer)) == 0)


def refuse(result: int, what: str) -> int:
    if result < 0:
        raise SeccompError(-result, f"seccomp: {what}: {os.strerror(-result)}")
    return result
