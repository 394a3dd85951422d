"""The savers of lab/writers that need a framework restore the saved state, or tear it."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Any

import pytest

pytest.importorskip("orbax", reason="of build/frameworks-venv")

from lab.measure import alone as jobs
from lab.measure import alone_child as child
from lab.networks.layout import tiny
from lab.tests.test_storage import answered
from lab.writers import chainer_savers
from lab.writers.menu import FRAMEWORKS, MENU, SAVERS
from lab.writers.values import Values, wrong

SEED = 5
LAYOUT = tiny()
NAMES = [one.name for one in MENU if one.environment == FRAMEWORKS]
# They fork, which a process with the threads of TensorFlow and JAX had better not do.
ALONE = ("chainer-process", "chainer-process-queue")
# They write arrays that training goes on to change: their content depends on timing.
TEARING = ("chainer-thread", "chainer-thread-queue", "chainer-process-queue")
TORN = ("restored wrong bytes", "loaded wrong bytes")


@pytest.mark.parametrize("name", NAMES)
def test_a_saver_restores_what_it_saved(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name not in ALONE:  # the others need no process of their own, which takes seconds to start
        monkeypatch.setattr(jobs, "ask", answered)
        monkeypatch.setattr(child, "settle", lambda: None)
    LAYOUT.write(tmp_path / "layout")
    found = jobs.measure(SAVERS[name], tmp_path / "layout", tmp_path / "place", SEED, saves=2)
    error = found.get("error", "")
    assert error == "" or (name in TEARING and error.startswith(TORN)), error
    assert len(found["saves"]) == 2
    assert 0.9 < found["saves"][1]["file_bytes"] / LAYOUT.nbytes < 1.1


@pytest.mark.parametrize("kind", ["ChainerThreadWriter", "ChainerThreadQueueWriter"])
def test_a_thread_of_chainer_stores_what_training_has_changed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, changed = Values(SEED), Event()
    saver = getattr(chainer_savers, kind)(LAYOUT, values)
    write = saver.serializers.save_npz

    def write_late(*arguments: Any, **options: Any) -> None:
        changed.wait()
        write(*arguments, **options)

    monkeypatch.setattr(saver.serializers, "save_npz", write_late)
    saver.open(tmp_path)
    saver.fill(1)
    pending = saver.save(tmp_path, 1)
    pending.captured()
    saver.fill(2)
    changed.set()
    pending.committed()
    saver.close()
    saver.fill(3)
    saver.restore(tmp_path, 1)
    assert wrong(values, LAYOUT, saver.contents(), 2) == []
