"""The order in which `make test` begins the files of Python tests: the longest first.

A worker that begins a file of minutes at the end keeps all others waiting.
"""

import pytest

# A quarter of a minute and more each. A file that is missing here costs time and nothing else.
LONGEST = (
    "tests/e2e/test_resume_identity.py",
    "tests/faults/test_faults.py",
    "tests/chaos/test_kills.py",
    "lab/tests/test_torture.py",
    "tests/objects/test_tier.py",
    "tests/e2e/test_no_deadlock.py",
    "lab/tests/test_storage.py",
    "tests/ranks/test_ranks.py",
    "lab/tests/test_ranks.py",
    "examples/recipes/test_recipes.py",
    "tests/nodes/namespaces/test_namespaces.py",
    "tests/mpi/test_mpi.py",
    "tests/chaos/test_soak.py",
    "tests/ranks/test_dcp.py",
    "lab/tests/test_window.py",
    "tests/e2e/test_soak.py",
    "tests/e2e/test_interop.py",
    "lab/tests/test_crash.py",
    "python/tests/test_window.py",
    "tests/objects/test_agents.py",
    "lab/tests/test_cost.py",
    "tools/tests/test_tidy.py",
    "tests/e2e/test_first_calls.py",
    "python/tests/test_documents.py",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Only for workers that keep the order; by itself xdist begins with the file of most tests."""
    if config.getoption("loadscopereorder", True):
        return
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.nodeid.split("::")[0], len(LONGEST)))
