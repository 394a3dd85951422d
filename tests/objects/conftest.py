from collections.abc import Iterator

import pytest

from .seaweed import Seaweed, started


@pytest.fixture(scope="session")
def store() -> Iterator[Seaweed]:
    """One for all tests of a process. A test that kills it starts it again."""
    with started() as seaweed:
        yield seaweed
