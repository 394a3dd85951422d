"""The program in README.md runs as it stands, and goes on where it was stopped."""

from __future__ import annotations

import re
from pathlib import Path

import deepfreeze as df

README = Path(__file__).resolve().parents[2] / "README.md"


def program() -> str:
    (text,) = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    return str(text)


def test_the_program_in_the_readme_runs_and_resumes(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    stopped = program().replace("101", "5")
    exec(compile(stopped, "first.py", "exec"), {})
    assert df.Checkpointer("runs/first", read_only=True).latest() == 4

    found: dict[str, object] = {}
    exec(compile(program(), "first.py", "exec"), found)
    assert found["start"] == 4
    assert df.Checkpointer("runs/first", read_only=True).steps() == [98, 99, 100]
