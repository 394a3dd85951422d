"""A process that ends with its parent, however that ends."""

import ctypes
import signal

PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """SIGKILL comes when the thread that started this process is gone."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
