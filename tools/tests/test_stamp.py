"""A finished step is done again exactly when its content changed."""

from __future__ import annotations

from pathlib import Path

import pytest

import stamp
from stamp import Stamp


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(stamp, "ROOT", tmp_path)
    (tmp_path / "src" / "__pycache__").mkdir(parents=True)
    (tmp_path / "src" / "a.cc").write_text("1")
    (tmp_path / "src" / "__pycache__" / "a.pyc").write_text("2")
    return tmp_path


def test_files_are_found_without_caches(root: Path) -> None:
    (root / "README.md").write_text("3")
    found = stamp.files_under("src", "README.md", "missing")
    assert [path.relative_to(root).as_posix() for path in found] == ["README.md", "src/a.cc"]


def test_content_name_and_extra_words_change_the_digest(root: Path) -> None:
    file = root / "src" / "a.cc"
    first = stamp.digest([file])
    assert stamp.digest([file]) == first
    assert stamp.digest([file], "release") != first
    file.touch()
    assert stamp.digest([file]) == first
    file.write_text("2")
    assert stamp.digest([file]) != first
    renamed = file.rename(root / "src" / "b.cc")
    renamed.write_text("1")
    assert stamp.digest([renamed]) != first


def test_a_stamp_is_current_only_for_its_content(root: Path) -> None:
    path = root / "build" / ".stamp"
    assert not Stamp(path, "one").is_current()
    Stamp(path, "one").write()
    assert Stamp(path, "one").is_current()
    assert not Stamp(path, "two").is_current()
    Stamp(path, "one").clear()
    assert not Stamp(path, "one").is_current()
