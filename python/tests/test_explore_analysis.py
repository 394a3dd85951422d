"""Results that programs leave in a run: only well-formed ones are read and shown."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from explore_kit import answers, save_all, weights

from deepfreeze.errors import CheckpointError
from deepfreeze.exploring import analyses, single_file
from deepfreeze.exploring.answers import Answers

EVIL = "<img src=x onerror=alert(1)></script>\u2028"
GOOD: dict[str, Any] = {
    "format": 1,
    "title": "Likeness of steps",
    "about": "made by hand",
    "value": "CKA",
    "rows": {"title": "step", "names": ["1", "2"]},
    "columns": {"title": "step", "names": ["1", "2", "3"]},
    "values": [[1, 0.5, None], [0.25, float("nan"), float("inf")]],
}


def write(run: Path, name: str, record: Any) -> Path:
    (run / "analysis").mkdir(exist_ok=True)
    path = run / "analysis" / f"{name}.json"
    path.write_text(record if isinstance(record, str) else json.dumps(record))
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    save_all(tmp_path / "run", {1: weights(1)})
    return tmp_path / "run"


@pytest.fixture
def made(run: Path, tmp_path: Path) -> Answers:
    return answers(tmp_path / "cache", run)


def asked(made: Answers, *words: str) -> Any:
    return json.loads(made.of([words[0], made.runs[0].id, *words[1:]])[1])


def test_a_run_without_results_has_none(made: Answers) -> None:
    assert asked(made, "analyses") == {"analyses": []}


def test_results_are_listed_by_name_as_they_are_now(run: Path, made: Answers) -> None:
    write(run, "b", GOOD)
    write(run, "a", {**GOOD, "title": EVIL})
    (run / "analysis" / "notes.txt").write_text("not for the page")
    assert asked(made, "analyses")["analyses"] == [
        {"name": "a", "title": EVIL, "fault": ""},
        {"name": "b", "title": "Likeness of steps", "fault": ""},
    ]
    found = asked(made, "analysis", "b")
    assert found["values"] == [[1.0, 0.5, None], [0.25, None, "inf"]]
    assert (found["rows"], found["columns"]) == (GOOD["rows"], GOOD["columns"])
    assert found["log"] is False


BAD: list[tuple[str, Any]] = [
    ("no JSON", "{"),
    ("another format", {**GOOD, "format": 2}),
    ("no record", [GOOD]),
    ("deep", "[" * 100_000),
    ("a long number", '{"format": 1' + "0" * 5000 + "}"),
    ("no title", {**GOOD, "title": ""}),
    ("a title that is no text", {**GOOD, "title": ["x"]}),
    ("a long title", {**GOOD, "title": "x" * 4097}),
    ("no names", {**GOOD, "rows": {"title": "step", "names": []}}),
    ("a name that is no text", {**GOOD, "rows": {"title": "step", "names": ["1", 2]}}),
    ("a long name", {**GOOD, "rows": {"title": "step", "names": ["1", "x" * 4097]}}),
    ("a row too few", {**GOOD, "values": GOOD["values"][:1]}),
    ("a number too few", {**GOOD, "values": [[1, 2, 3], [1, 2]]}),
    ("text for a number", {**GOOD, "values": [[1, 2, 3], [1, 2, EVIL]]}),
    ("truth for a number", {**GOOD, "values": [[1, 2, 3], [1, 2, True]]}),
    ("a number beyond a double", {**GOOD, "values": [[1, 2, 3], [1, 2, 10**400]]}),
    ("too many numbers", {
        **GOOD, "values": [[0] * 400] * 251,
        "rows": {"title": "r", "names": ["x"] * 251},
        "columns": {"title": "c", "names": ["x"] * 400},
    }),
    ("too large", {**GOOD, "more": "x" * (4 << 20)}),
]  # fmt: skip


@pytest.mark.parametrize(("what", "record"), BAD, ids=[name for name, _ in BAD])
def test_a_bad_file_is_named_with_its_fault(
    run: Path, made: Answers, what: str, record: Any
) -> None:
    write(run, "bad", record)
    write(run, "good", GOOD)
    bad, good = asked(made, "analyses")["analyses"]
    assert good["fault"] == ""
    assert bad["fault"].startswith("analysis/bad.json: ")
    with pytest.raises(CheckpointError) as raised:
        asked(made, "analysis", "bad")
    assert raised.value.code == "corrupt"


def test_a_fault_says_what_is_wrong_and_what_to_do(run: Path, made: Answers) -> None:
    write(run, "a", {**GOOD, "more": "x" * (4 << 20)})
    write(run, "b", {**GOOD, "values": [[1, 2, 3]]})
    assert [each["fault"] for each in asked(made, "analyses")["analyses"]] == [
        "analysis/a.json: more than 4 MiB; write it again",
        "analysis/b.json: values: not 2 rows of 3 numbers; write it again",
    ]


def test_nothing_but_regular_files_of_the_run_is_read(
    run: Path, made: Answers, tmp_path: Path
) -> None:
    secret = write(run, "good", GOOD)
    outside = secret.rename(tmp_path / "secret.json")
    (run / "analysis" / "link.json").symlink_to(outside)
    (run / "analysis" / "folder.json").mkdir()
    os.mkfifo(run / "analysis" / "pipe.json")
    assert all(each["fault"] for each in asked(made, "analyses")["analyses"])
    for name in ("../../secret", "..", "", "/etc/passwd", "secret", "a/b", "x\0y"):
        with pytest.raises(CheckpointError, match="no such analysis"):
            asked(made, "analysis", name)
    (run / "analysis").rename(tmp_path / "elsewhere")
    outside.rename(tmp_path / "elsewhere" / "secret.json")
    (run / "analysis").symlink_to(tmp_path / "elsewhere")
    assert all(each["fault"] for each in asked(made, "analyses")["analyses"])


def test_a_name_that_is_not_text_is_shown_and_found(run: Path, made: Answers) -> None:
    path = write(run, "x", GOOD)
    path.rename(Path(os.fsdecode(os.fsencode(run / "analysis") + b"/\xff<b>.json")))
    (row,) = asked(made, "analyses")["analyses"]
    assert row["name"] == "\ufffd<b>"
    assert asked(made, "analysis", row["name"])["title"] == GOOD["title"]


def test_many_files_are_cut_off(run: Path, made: Answers) -> None:
    for place in range(101):
        write(run, f"{place:03}", GOOD)
    rows = asked(made, "analyses")["analyses"]
    assert [rows[0]["name"], rows[-1]["name"], len(rows)] == ["000", "099", 100]


def test_the_single_file_has_them_inert(run: Path, made: Answers) -> None:
    write(run, EVIL.replace("/", "_"), {**GOOD, "title": EVIL})
    write(run, "bad", "{")
    page = single_file.page(made)
    assert "Likeness" not in page
    assert '"value":"CKA"' in page
    assert EVIL not in page
    assert "analysis/bad.json: " in page


def test_the_folder_is_no_run_and_no_step(run: Path) -> None:
    write(run, "good", GOOD)
    assert analyses.names_of(run) == ["good"]
    save_all(run, {2: weights(2)})  # a later save leaves it there
    assert analyses.names_of(run) == ["good"]
