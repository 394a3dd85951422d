"""The mark of tests that run the simulation's program."""

from pathlib import Path

import pytest

HEADER = Path("/usr/include/simgrid/s4u.hpp")

# If the library is there, `make build` makes the program: one that is missing then is a failure.
built = pytest.mark.skipif(
    not HEADER.exists(), reason="LEFT OUT: libsimgrid-dev is not installed; `make setup` does that"
)
