"""Other users of this machine: a forked child acts as one of them."""

import os
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

GROUP = 54321  # neither it nor the users need to be known to this machine
ALICE, BOB = 54331, 54332

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="LEFT OUT: only root can act as two other users"
)


def as_user(user: int, umask: int, act: Callable[[], object], group: int | None = None) -> None:
    """Calls `act` in a child of that user, whose own group is `group`; GROUP is his second one."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([GROUP])
            os.setgid(group or user)
            os.setuid(user)
            os.umask(umask)
            act()
            os._exit(0)
        except BaseException:
            os.write(writer, traceback.format_exc()[-4000:].encode())
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader) as text:
        error = text.read()
    assert os.waitpid(child, 0)[1] == 0, error


@contextmanager
def shared_directory(mode: int = 0o2775) -> Iterator[Path]:
    """A directory of root and GROUP on the way to which all may pass."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o711)
        place = Path(name) / "shared"
        place.mkdir()
        os.chown(place, 0, GROUP)
        place.chmod(mode)
        yield place
