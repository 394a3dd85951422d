"""Every victim of the frameworks saves and loads undisturbed; some of them with faults.

lab/tests/test_torture.py tests that the faults happen and that the judge is right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("orbax", reason="of build/frameworks-venv")

from lab.faults import calls, changes, damage, shortage
from lab.faults.disk import MissingError
from lab.faults.nursery import Nursery
from lab.faults.state import BY_HAND, DETECTED, FELL_BACK, LOST, OF_OLDER, SILENT, Judge, layout
from lab.faults.subject import Subject
from lab.writers.menu import CHAINER, JAX, TF, Entry
from lab.writers.menu import VICTIMS as MENU
from lab.writers.menu import VICTIMS_BY_NAME as SAVERS
from lab.writers.values import Values

SEED = 5
JUDGE = Judge(layout(1), Values(SEED))
NAMES = [one.name for module in (CHAINER, TF, JAX) for one in MENU if one.module == module]
DAMAGES = 3


@pytest.fixture(scope="module")
def nurseries() -> Iterator[dict[str, Nursery]]:
    """The last nursery that was asked for, by module: opened by `subject`."""
    opened: dict[str, Nursery] = {}
    try:
        yield opened
    finally:
        close(opened)


def close(opened: dict[str, Nursery]) -> None:
    for module in list(opened):
        opened.pop(module).close()


def subject(name: str, opened: dict[str, Nursery], place: Path) -> Subject:
    entry: Entry = replace(SAVERS[name], layers=1)
    if entry.module not in opened:
        close(opened)
        opened[entry.module] = Nursery(entry.python, (*entry.imports, entry.module), ())
        opened[entry.module].open(SEED)
    return Subject(entry, opened[entry.module], JUDGE, Random(SEED), place)


# One after the other by module: each is imported once.
DAMAGED = {"chainer-npz": DETECTED, "chainer-hdf5": DETECTED, "chainer-hdf5-stored": SILENT,
           "df-chainer": FELL_BACK, "tensorflow": DETECTED, "keras-weights": SILENT,
           "keras": DETECTED, "df-keras": FELL_BACK, "orbax": SILENT,
           "df-jax": FELL_BACK}  # fmt: skip
FULL = {"df-chainer": (shortage.REFUSED, OF_OLDER, True),
        "chainer-npz": (shortage.REFUSED, LOST, True),
        "chainer-thread": (shortage.ACKNOWLEDGED, LOST, True),
        "chainer-thread-queue": (shortage.HANGS, OF_OLDER, False),
        "df-tensorflow": (shortage.REFUSED, OF_OLDER, True),
        "tensorflow-async": (shortage.ACKNOWLEDGED, LOST, False),
        "tensorflow-saved-model": (shortage.REFUSED, BY_HAND, True),
        "df-jax": (shortage.REFUSED, OF_OLDER, True)}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_faults_do_to_a_writer_of_a_framework_what_the_study_says(
    name: str, nurseries: dict[str, Nursery], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = subject(name, nurseries, tmp_path)
    if name in DAMAGED:
        with closing(damage.run(one, changes.BIT, DAMAGES)) as trials:
            outcomes = Counter(trial.outcome for trial in trials)
        assert outcomes.most_common(1)[0][0] == DAMAGED[name]
    else:
        undisturbed(one, tmp_path / "run")
    if name in FULL:
        monkeypatch.setattr(shortage, "SAVE_SECONDS_MAX", 5.0)
        assert in_full_disk(one) == FULL[name]


def undisturbed(one: Subject, directory: Path) -> None:
    """Counts its calls if the machine can: the study kills a save by their number."""
    if calls.missing():
        one.save(directory)
        one.check_undamaged(directory)
    else:
        one.save_calls(directory)  # an error if it sees none, or loads other values


def in_full_disk(one: Subject) -> tuple[str, str, bool]:
    try:
        (trial,) = shortage.run(one, 1)
    except MissingError as error:
        pytest.skip(f"LEFT OUT: {error}")
    return trial.detail["came"], trial.outcome, trial.detail["later"]
