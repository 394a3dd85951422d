"""The sites that tools/mutants.py finds in a source, and the mutants that it makes of them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

import mutant_tree as tree
import mutants
from mutant_sites import Edit, Finder, masked, refusing_names, rewritten

ROOT = Path(__file__).resolve().parents[2]


def edits_of(text: str) -> list[Edit]:
    return list(Finder("x.cc", text, refusing_names(iter([text]))).edits())


def left_out(text: str) -> list[tuple[str, str]]:
    return [(edit.site.kind, edit.site.text) for edit in edits_of(text)]


def test_a_call_whose_result_is_only_tried_can_go() -> None:
    assert left_out("DF_TRY_VOID(vfs.sync_dir(f(a, b)));") == [
        ("call", "DF_TRY_VOID(vfs.sync_dir(f(a, b)));")
    ]


def test_syncs_stand_in_expressions_too() -> None:
    text = "if (::fsync(fd.get()) != 0) return os(1);\nconst Status done = vfs.sync_dir(name);"
    assert left_out(text) == [("sync", "::fsync(fd.get())"), ("sync", "vfs.sync_dir(name)")]
    of_member = "return leader_.vfs.sync_dir(name);"
    assert left_out(of_member) == [("sync", "leader_.vfs.sync_dir(name)")]
    assert left_out("Status PosixFile::sync() {") == []


def test_each_operand_of_a_check_is_a_site() -> None:
    text = 'if (!a || b(x || y) > 3 || (c)) {\n  return fail(kCorrupt, "if (no || site)");\n}'
    assert left_out(text) == [("check", "!a"), ("check", "b(x || y) > 3"), ("check", "(c)")]


def test_what_must_hold_is_taken_for_granted() -> None:
    text = "if (a && b(c && d)) return {};\nreturn refuse(1);"
    made = rewritten(text, list(enumerate(edits_of(text), 1)))
    assert made == (
        "if ((!df_mutant_live(1) || (a)) && (!df_mutant_live(2) || (b(c && d)))) return {};\n"
        "return refuse(1);"
    )
    assert left_out("if (a) return {};\nb();") == []


def test_functions_that_make_errors_are_known_by_their_type() -> None:
    text = "std::unexpected<Error> odd(int x);\nif (x) return odd(x);\nif (y) return even(y);"
    assert left_out(text) == [("check", "x")]


def test_the_last_part_of_a_condition_counts_and_declarations_do_not() -> None:
    text = "if (const auto a = b(); !a) return fail(1);\nif (auto c = d()) return fail(2);"
    assert left_out(text) == [("check", "!a")]


def test_a_check_may_be_told_by_false_or_by_nothing() -> None:
    for said in ("false", "std::nullopt"):
        assert left_out(f"if (x != y) return {said};") == [("check", "x != y")]
    assert left_out("if (x != y) return true;") == []


def test_in_staging_false_is_mostly_whose_turn_it_is() -> None:
    text = "if (crc32c(x) != sums[i]) return false;\nif (stopping) return false;"
    found = Finder("src/staging/x.cc", text, refusing_names(iter([text]))).edits()
    assert [edit.site.text for edit in found] == ["crc32c(x) != sums[i]"]


def test_a_comparison_of_checksums_may_be_what_a_function_returns() -> None:
    text = "return crc32c(x) == sums[i];\nreturn a == b;"
    assert left_out(text) == [("check", "crc32c(x) == sums[i]")]
    made = rewritten(text, list(enumerate(edits_of(text), 1)))
    assert made.startswith("return (!df_mutant_live(1) || (crc32c(x) == sums[i]));")


def test_an_error_may_come_a_line_after_what_must_hold() -> None:
    text = "if (a == b) return {};\nconst auto i = b - a;\nreturn fail(i);"
    assert left_out(text) == [("demand", "a == b")]
    assert left_out("if (is_new || crc == own) continue;\nreturn fail(1);") == [
        ("demand", "is_new || crc == own")
    ]


def test_comments_and_literals_are_no_code() -> None:
    text = "// if (a) return fail(1);\nconst auto x = R\"(if (b) return fail(2);)\" + ')';"
    assert left_out(text) == []
    assert len(masked(text)) == len(text)


def test_what_is_inside_another_site_stays_inside() -> None:
    text = "if (a) {\n  return fail(1);\n}\nDF_TRY_VOID(f());"
    made = rewritten(text, list(enumerate(edits_of(text), 1)))
    assert "if (df_mutant_live(1)) { DF_TRY_VOID(f()); }" in made
    assert "if ((df_mutant_live(2) && (a))) {" in made


def test_again_takes_what_was_unnoticed_and_what_is_new(tmp_path: Path) -> None:
    text = "".join(f"if ({name}) return fail(1);\n" for name in ("seen", "unseen", "twice", "new"))
    before = tmp_path / "verdicts.json"
    edits = list(enumerate(edits_of(text + "if (twice) return fail(2);\n"), 1))
    sites = [asdict(edit.site) for _, edit in edits if edit.site.text != "new"][:3]
    noticed = {"seen": "a test", "unseen": "", "twice": "another"}
    before.write_text(json.dumps([{"site": e, "noticed_by": noticed[e["text"]]} for e in sites]))
    again = mutants.chosen(edits, mutants.parse(["--again", str(before)]))
    assert [number for number, _ in again] == [2, 3, 4, 5]  # which "twice" is new can't be told
    (kept,) = mutants.kept(edits, again, before)
    assert (kept.number, kept.site.text, kept.noticed_by) == (1, "seen", "a test")


def test_an_excuse_is_for_one_site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = "".join(f"if ({name}) return fail(1);\n" for name in ("alone", "twice", "twice"))
    edits = list(enumerate(edits_of(text), 1))
    edits = [(n, replace(e, site=replace(e.site, path="src/x.cc"))) for n, e in edits]
    idle = tmp_path / "idle.txt"
    monkeypatch.setattr(mutants, "IDLE", idle)
    idle.write_text("# why\nsrc/x.cc | alone | a reason\nsrc/x.cc | twice #2 | another\n")
    assert mutants.misfits(edits) == []
    assert [number for number, _ in mutants.chosen(edits, mutants.parse([]))] == [2]
    before = tmp_path / "verdicts.json"
    before.write_text(json.dumps([{"site": asdict(edits[1][1].site), "noticed_by": "a test"}]))
    assert mutants.chosen(edits, mutants.parse(["--again", str(before)])) == []
    assert [each.number for each in mutants.kept(edits, [], before)] == [2]
    idle.write_text("src/x.cc | twice | of which?\nsrc/x.cc | gone | a reason\n")
    assert mutants.misfits(edits) == ["src/x.cc: gone", "src/x.cc: twice"]


def test_the_sources_have_all_that_durability_and_detection_rest_on() -> None:
    found = {(edit.site.path, edit.site.text) for _, edit in tree.find_edits(ROOT)}
    for path, text in (
        ("src/pipeline/part_files.cc", "DF_TRY_VOID(file.sync());"),
        ("src/manifest/commit.cc", "DF_TRY_VOID(vfs.sync_dir(directory));"),
        ("src/storage/posix_file.cc", "::fdatasync(fd_.get())"),
        ("src/storage/sync_directory.cc", "::fsync(fd)"),
        ("src/format/decode_header.cc", "stored != header_crc(bytes)"),
        ("src/manifest/sealed_parts.cc", "*crc != own.header_crc"),
        ("src/pipeline/block_reader.cc", "found != stored"),
        ("src/pipeline/block_reader.cc", "bytes_there < extent.size()"),
        ("src/staging/witness.cc", "crc32c(copied) == record.pieces[number]"),
        ("src/agreement/given_tensors.cc", "there == first.end()"),
    ):
        assert (path, text) in found
