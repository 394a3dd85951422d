"""Findings, advice, tables and Markdown, from rows made by hand."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.measure.row import Row, check
from lab.report.findings import findings
from lab.report.key_figures import key_figures
from lab.report.markdown import summary
from lab.report.page import page
from lab.report.summary import Figure, Study
from lab.report.table import Mood, amount, seconds, size
from lab.report.tables import TABLES, tables
from lab.report.takeaways import FOR_DEVELOPERS, FOR_USERS, takeaways

ABOUT = {"quick": True, "seed": 7, "machine": {"cpu": "a CPU", "kernel": "a kernel"}}


def study_of(*rows: Row) -> Study:
    return Study(Path(), ABOUT, tuple(check({"status": "ok", **row}) for row in rows))


def cost_row(writer: str, stall: float, **more: Any) -> Row:
    return {
        "experiment": "cost", "framework": "pytorch", "workload": "mlp", "writer": writer,
        "title": f"<{writer}>", "state_bytes": 1 << 30, "synced": "all", "stall_seconds": stall,
        "durable_seconds": 2 * stall, **more,
    }  # fmt: skip


def corrupted(writer: str, verdict: str, **more: Any) -> Row:
    return {
        "experiment": "corruption", "framework": "jax", "writer": writer, "title": writer,
        "fault": "one bit flipped", "verdict": verdict, "trials": 12, "found": 0, "silent": 12,
        **more,
    }  # fmt: skip


def crashed(writer: str, fault: str, verdict: str, **more: Any) -> Row:
    return {
        "experiment": "crash", "framework": "jax", "writer": writer, "title": writer,
        "fault": fault, "verdict": verdict, **more,
    }  # fmt: skip


def scaled(strategy: str, **more: Any) -> Row:
    return {
        "experiment": "scale", "framework": "pytorch", "workload": "mlp", "scaling": "weak",
        "strategy": strategy, "writer": strategy, "stall_seconds": 0.5, "run_time_ratio": 1.25,
        **more,
    }  # fmt: skip


def sentences(study: Study) -> str:
    return "\n".join(found.sentence for found in findings(study))


def test_deepfreeze_is_held_against_the_best_other_writer_of_its_framework() -> None:
    study = study_of(
        cost_row("df", 0.001), cost_row("slow", 4.0), cost_row("quick", 0.01),
        cost_row("other", 0.0001, framework="jax"),
    )  # fmt: skip
    said = sentences(study)
    assert "PyTorch 1 ms with DeepFreeze, 10 ms with <quick> (10 times as long)." in said
    assert "(state of 1 GiB, mlp;" in said
    assert len(findings(study)[0].rows) == 2


def test_a_quicker_writer_is_not_hidden() -> None:
    said = sentences(study_of(cost_row("df", 0.1), cost_row("quick", 0.01)))
    assert "10 ms with <quick> (0.1 of that)" in said


def test_a_writer_that_mixes_steps_is_not_the_best() -> None:
    mixing: Row = {"experiment": "tearing", "writer": "torn", "title": "<torn>", "verdict": "torn"}
    study = study_of(
        cost_row("df", 0.1), cost_row("torn", 0.01), cost_row("copying", 0.2), mixing
    )  # fmt: skip
    assert "200 ms with <copying>" in sentences(study)
    assert "for their snapshots mix steps: <torn>" in sentences(study)


def restarted(writer: str, saved: str, missing: str, verdict: str, **more: Any) -> Row:
    return {
        "experiment": "determinism", "framework": "jax", "writer": writer, "title": writer,
        "fault": "killed", "saved": saved, "missing": missing, "verdict": verdict, **more,
    }  # fmt: skip


def test_a_part_that_was_saved_and_did_not_come_back_counts_against_the_writer() -> None:
    otherwise = '{"model_differs_from": 11}'
    study = study_of(
        restarted("df", "model, rng", "rng", "DIVERGED", detail=otherwise),
        restarted("orbax", "model, rng", "", "BIT_IDENTICAL"),
        restarted("orbax", "model", "rng", "DIVERGED", detail=otherwise),
        restarted("careless", "model", "rng", "DIVERGED"),
        restarted("broken", "model", "rng", "FAILED"),
    )  # fmt: skip
    said = sentences(study)
    assert "0 of 1 trainings that were killed and resumed with DeepFreeze end bit for bit" in said
    assert "1 of 1 trainings that were killed and resumed with the other writers" in said
    assert "Without a part of the state (rng) 1 of 2 resumed trainings learn otherwise" in said


def test_parts_that_were_missing_are_those_of_the_rows_and_the_weights_are_nothing_beside() -> None:
    otherwise = '{"model_differs_from": 11}'
    study = study_of(
        restarted("df", "model, data, rng", "", "BIT_IDENTICAL"),
        restarted("df", "data, rng", "model", "DIVERGED", detail=otherwise),
        restarted("df", "model", "rng, data", "DIVERGED", detail=otherwise),
    )
    assert "Without a part of the state (data, model, rng) 2 of 2" in sentences(study)
    (advice,) = takeaways(study)[FOR_USERS]
    assert "where this was missing: data; rng." in advice.sentence
    assert len(advice.rows) == 1


def test_a_writer_that_failed_is_named_and_not_judged() -> None:
    broken = corrupted("broken", "", status="failed", reason="no")
    said = sentences(study_of(corrupted("df-jax", "found"), broken))
    assert "1 of 1 writers notice every kind of damage" in said
    assert "Not judged, for it failed here: broken." in said


def test_repetitions_that_contradict_each_other_are_shown() -> None:
    study = study_of(corrupted("df-jax", "found"), corrupted("df-jax", "silent"))
    table = tables(study, "corruption")[-1]
    assert table.title == "Repetitions that do not agree"
    assert [cell.text for cell in table.lines[0].cells][1:] == ["verdict", "found, silent"]


def test_the_model_says_which_way_it_errs() -> None:
    errors = (
        scaled("rank0", ranks=count, simulated=True, quantity="stall_seconds",
               prediction_error=error)
        for count, error in ((2, -0.5), (4, -0.25), (8, 0.1))
    )  # fmt: skip
    assert "rank 0 writes -25 % in the median, from -50 % to +10 %" in sentences(study_of(*errors))


def test_the_simulated_figure_says_what_of_it_is_put_in_and_what_is_no_code() -> None:
    said = sentences(study_of(*(scaled(name, nodes=4096, simulated=True, scaling="")
                                for name in ("rank0", "deepfreeze"))))  # fmt: skip
    assert "so are the 4 ms of DeepFreeze's own call, which are put in" in said
    assert "its design, not yet its code; the others write to the parallel file system" in said


def flipped(optimizer: str, bits: str, verdict: str) -> Row:
    return {
        "experiment": "sdc", "framework": "pytorch", "workload": f"MLP, {optimizer}",
        "component": "optimizer", "bits": bits, "flips": 1, "verdict": verdict,
    }  # fmt: skip


def test_classes_of_flips_are_told_apart_by_the_training() -> None:
    study = study_of(
        flipped("SGD", "exponent 30", "lost"), flipped("Adam", "exponent 30", "lost"),
        flipped("Adam", "sign 31", "lost"), flipped("SGD", "sign 31", "absorbed"),
    )  # fmt: skip
    (found,) = findings(study)
    assert found.sentence == (
        "Flipped bits ruin the training in 3 of 4 classes. MLP, SGD: optimizer, exponent 30, 1 at "
        "once. MLP, Adam: optimizer, exponent 30, 1 at once; optimizer, sign 31, 1 at once."
    )
    assert len(found.rows) == 4


def resting_on(study: Study, words: str) -> int:
    (found,) = (one for one in findings(study) if words in one.sentence)
    return len(found.rows)


def test_a_sentence_carries_all_rows_of_its_share_and_those_it_passes_over() -> None:
    broken = corrupted("broken", "", status="failed", reason="no")
    damaged = (corrupted("df-jax", "found"), corrupted("careless", "silent"), broken)
    assert resting_on(study_of(*damaged), "1 of 2 writers notice") == 3

    costs = (cost_row("df", 0.1), cost_row("torn", 0.1, synced="nothing"))
    mixing: Row = {"experiment": "tearing", "writer": "torn", "title": "<torn>", "verdict": "torn"}
    assert resting_on(study_of(*costs, mixing), "mix steps") == 2
    assert resting_on(study_of(*costs, mixing), "1 of 2 writers sync nothing") == 2

    about: Row = {"experiment": "formats", "workload": "mlp", "file_bytes": 9, "state_bytes": 9}
    same: tuple[Row, ...] = (
        {**about, "writer": "a", "reproducible": True},
        {**about, "writer": "b", "reproducible": False},
    )  # fmt: skip
    assert resting_on(study_of(*same), "1 of 2 writers give the same bytes") == 2
    assert resting_on(study_of(*same, {**about, "writer": "c"}), "takes from") == 3
    once = study_of(*same, {**about, "writer": "c"})
    assert resting_on(once, "1 of 2 writers give the same bytes") == 2
    (table,) = tables(once, "formats")
    assert [line.cells[-1].text for line in table.lines] == ["yes", "no", ""]

    timed: Row = {"experiment": "frequency", "workload": "mlp", "framework": "jax",
                  "interval": 1, "run_time_ratio": 1.5}  # fmt: skip
    every = ({**timed, "writer": name} for name in ("df-default", "x", "y", "z"))
    study = study_of(*every, {**timed, "writer": "none", "interval": 0})
    assert resting_on(study, "Saving after every step") == 5

    tiered = ({**timed, "writer": f"df-{name}"} for name in ("default", "tier", "agent", "eager"))
    assert resting_on(study_of(*tiered), "1 times with df-tier, 1 times with df-agent") == 3

    plain: Row = {"experiment": "restore", "workload": "mlp"}
    restores: tuple[Row, ...] = (
        {**plain, "writer": "a", "verdict": "same bytes"},
        {**plain, "writer": "b", "verdict": "other bytes"},
    )
    assert resting_on(study_of(*restores), "1 of 2 restores") == 2


def test_a_flip_that_goes_unnoticed_rests_also_on_those_that_ruin_a_training() -> None:
    row = {**flipped("SGD", "sign 31", "silent"), "writer": "dcp", "title": "dcp.save"}
    study = study_of(flipped("SGD", "sign 31", "lost"), row)
    assert resting_on(study, "goes unnoticed with 1 writer") == 2


def test_only_who_is_declared_to_sync_nothing_is_said_to() -> None:
    study = study_of(
        cost_row("df", 1.0), cost_row("dcp", 1.0, synced="files"),
        cost_row("torch-save", 1.0, synced="nothing"),
    )  # fmt: skip
    assert (
        "1 of 3 writers sync nothing that they wrote, as declared in lab/writers/menu.py"
    ) in sentences(study)
    (advice,) = takeaways(study)[FOR_DEVELOPERS]
    assert "With 1 writer, as declared in lab/writers/menu.py" in advice.sentence
    assert "as declared in lab" in tables(study, "cost")[0].notes[0]


def packed(writer: str, seconds: float, size: int) -> Row:
    return cost_row(writer, seconds / 2, detail=json.dumps({"file_bytes": size}))


def test_what_compressing_costs_is_told_with_what_it_saves() -> None:
    study = study_of(packed("chainer", 30.0, 900), packed("chainer-stored", 0.5, 1000))
    assert (
        "<chainer> takes 60 times as long until it is durable (30 s, not 500 ms) as "
        "<chainer-stored>, for 90 % of its size (900 B, not 1000 B)."
    ) in sentences(study)
    assert resting_on(study, "Compressed beside uncompressed (mlp") == 2
    assert "Compressed" not in sentences(study_of(packed("chainer", 30.0, 900)))


def test_nothing_is_said_of_what_was_not_measured() -> None:
    failed = cost_row("df", 0.1, status="failed", reason="no")
    assert sentences(study_of(failed)) == ""
    assert findings(study_of()) == []
    assert all(not advice for advice in takeaways(study_of()).values())


def test_silent_writers_are_named_and_advice_follows() -> None:
    study = study_of(
        corrupted("df-jax", "found", found=12, silent=0), corrupted("careless", "silent")
    )
    assert "1 of 2 writers notice every kind of damage" in sentences(study)
    assert "these do not: careless" in sentences(study)
    advice = takeaways(study)
    assert "careless" in advice[FOR_USERS][0].sentence
    assert "Checksum the data" in advice[FOR_DEVELOPERS][0].sentence
    assert all("careless" in row for row in advice[FOR_USERS][0].rows)


def test_advice_needs_a_writer_that_goes_wrong() -> None:
    study = study_of(corrupted("df-jax", "found", found=12, silent=0))
    assert all(not advice for advice in takeaways(study).values())


@pytest.mark.parametrize(
    ("fault", "verdict", "said"),
    [
        ("power cut after the save, ext4", "can lose the newest", "Sync the files"),
        ("killed in the save", "can lose both", "Never save over the only checkpoint"),
        ("no space left in the save", "no error; both lost; the next save works", "free space"),
    ],
)
def test_each_loss_in_a_crash_has_its_advice(fault: str, verdict: str, said: str) -> None:
    advice = takeaways(study_of(crashed("loser", fault, verdict, found=0)))[FOR_USERS]
    assert [said in found.sentence for found in advice] == [True]


def killed(writer: str, *calls: str) -> Row:
    detail = json.dumps({"lost_before": calls})
    return crashed(writer, "killed in the save", "can lose both", detail=detail)


def test_developers_are_told_the_cause_that_rows_show_and_no_other() -> None:
    study = study_of(
        killed("over", "write latest.pt", "pwrite64 latest.pt"),
        killed("first", "rmdir latest", "unlinkat latest/x", "write latest.tmp/d"),
        killed("unknown"), killed("several", "write a", "fsync a"),
    )  # fmt: skip
    write, remove, other = (found.sentence for found in takeaways(study)[FOR_DEVELOPERS])
    assert write.startswith("Write under another name")
    assert write.endswith("and only there: over (latest.pt).")
    assert remove.startswith("Remove the older checkpoint last")
    assert remove.endswith("a removal: first (of latest, beside calls for latest.tmp).")
    assert "Not so with unknown; several; by which calls the rows do not show" in other


def test_what_is_lost_after_a_power_cut_is_bad_and_what_is_kept_is_good() -> None:
    (table,) = tables(
        study_of(
            crashed("loser", "power cut", "can lose the newest"),
            crashed("df", "power cut", "keeps the newest"),
        ),
        "crash",
    )
    assert [line.cells[2].mood for line in table.lines] == [Mood.BAD, Mood.GOOD]
    assert [line.ours for line in table.lines] == [False, True]


def cut(writer: str, file_system: str, kept: int, lost: int) -> Row:
    verdict = "can lose both" if lost else "keeps one"
    detail = json.dumps({"outcomes": {"older": kept, "lost": lost}})
    fault = f"power cut in the save, {file_system}"
    return crashed(writer, fault, verdict, trials=kept + lost, detail=detail)


def cuts_of(writer: str, lost: int = 0) -> list[Row]:
    return [cut(writer, "ext4", 4 - lost, lost), cut(writer, "xfs", 4, 0)]


def test_a_verdict_that_is_left_to_chance_says_in_how_many_tries() -> None:
    study = study_of(*cuts_of("loser", lost=3), *cuts_of("keeper"))
    (table,) = tables(study, "crash")
    assert [[cell.text for cell in line.cells[2:]] for line in table.lines] == [
        ["can lose both, 3 of 4 lost", "keeps one, 4 of 4"],
        ["keeps one, 4 of 4", "keeps one, 4 of 4"],
    ]
    assert (
        "1 of 2 writers still have a checkpoint when the power fails in their save, in each of 8 "
        "tries (one that loses in 31 % of such tries still passes 8 with a chance of 5 %); "
        "these do not: loser."
    ) in sentences(study)


def test_writers_that_were_tried_unlike_often_are_not_said_to_be_alike() -> None:
    study = study_of(*cuts_of("often"), cut("seldom", "ext4", 2, 0))
    assert "in each of 2 to 8 tries (one that loses in 78 % of such" in sentences(study)


def test_the_first_figures_say_in_how_many_tries_as_well() -> None:
    row = crashed("df", "power cut after the save, ext4", "keeps the newest", trials=4)
    (found,) = key_figures(study_of(row, {**row, "writer": "x", "title": "x"}))
    assert "in each of 4 tries" in found.caption


def test_a_reason_that_holds_for_a_whole_writer_is_in_every_column_and_below() -> None:
    gone: Row = {"experiment": "crash", "framework": "jax", "writer": "gone", "title": "gone",
                 "status": "not installed", "reason": "no gone"}  # fmt: skip
    (table,) = tables(study_of(crashed("df", "killed", "keeps one"), gone), "crash")
    assert [cell.text for cell in table.lines[1].cells] == ["gone", "JAX", "not installed"]
    assert table.notes[1:] == ("gone: no gone",)


def test_repetitions_are_one_line_with_their_spread() -> None:
    (table,) = tables(study_of(*(cost_row("df", one) for one in (0.3, 0.1, 0.2))), "cost")
    (line,) = table.lines
    assert line.cells[2].text == "200 ms [100 ms, 300 ms]"


def test_both_figures_of_ranks_have_their_spread() -> None:
    more = scaled("rank0", ranks=2, stall_seconds=0.7, run_time_ratio=1.35)
    table, _ = tables(study_of(scaled("rank0", ranks=2), more), "scale")
    told = "600 ms [500 ms, 700 ms]; +30 % [+25 %, +35 %]"
    assert table.lines[0].cells[1].text == told


def test_a_figure_of_one_run_says_so_and_one_of_the_model_does_not() -> None:
    one = {"experiment": "frequency", "framework": "jax", "workload": "mlp", "writer": "df"}
    (table,) = tables(study_of({**one, "interval": 1, "run_time_ratio": 1.5}), "frequency")
    assert table.lines[0].cells[2].text == "+50 %, one run"
    (saves,) = tables(study_of(cost_row("df", 0.1)), "cost")
    assert saves.lines[0].cells[2].text == "100 ms, one run"
    model = scaled("rank0", nodes=4096, simulated=True, scaling="")
    assert tables(study_of(model), "scale")[0].lines[0].cells[1].text == "500 ms"


def test_memory_has_its_spread_where_runs_differ() -> None:
    some = (cost_row("df", 0.1, peak_bytes=one << 20) for one in (10, 20, 30))
    (table,) = tables(study_of(*some), "cost")
    column = table.columns.index("Memory above the state")
    assert table.lines[0].cells[column].text == "20 MiB [10 MiB, 30 MiB]"
    assert amount(Figure(1024.0, 1024.0, 1024.0, 2)).text == "1 KiB"


def test_what_it_costs_to_be_ready_is_shown() -> None:
    study = study_of(cost_row("df", 0.1, open_seconds=0.25), cost_row("old", 0.2))
    (table,) = tables(study, "cost")
    column = table.columns.index("Ready")
    assert [line.cells[column].text for line in table.lines] == ["250 ms, one run", ""]
    assert any("Ready: from the state being there" in note for note in table.notes)


def test_ranks_are_columns_in_order_and_strategies_lines() -> None:
    study = study_of(
        scaled("rank0", ranks=8), scaled("rank0", ranks=2),
        scaled("deepfreeze", ranks=2, stall_seconds=0.001), scaled("none", ranks=2),
    )  # fmt: skip
    table, stragglers = tables(study, "scale")
    assert table.columns == stragglers.columns == ("Strategy", "2 ranks", "8 ranks")
    assert "rank 0 writes: rank0 (syncs nothing)" in table.notes[1]
    assert [cell.text for cell in table.lines[0].cells] == [
        "rank 0 writes", "500 ms; +25 %, one run", "500 ms; +25 %, one run",
    ]  # fmt: skip
    assert [line.cells[2].mood for line in table.lines] == [Mood.PLAIN, Mood.ABSENT]


def test_simulated_figures_say_so_and_are_never_beside_measured_ones() -> None:
    study = study_of(
        scaled("rank0", ranks=2),
        scaled("rank0", nodes=4096, simulated=True, scaling="", framework=""),
        scaled("rank0", ranks=2, simulated=True, quantity="stall_seconds", prediction_error=-0.5),
    )  # fmt: skip
    found = tables(study, "scale")
    assert [table.simulated for table in found[:2]] == [False, False]
    assert len(found) > 2
    assert all(table.simulated for table in found[2:])
    told = [
        one.sentence for one in findings(study) if "4,096" in one.sentence or "%" in one.sentence
    ]
    assert told
    assert all(one.startswith("SIMULATED") for one in told)
    assert summary(study).count(", SIMULATED") == len(found) - 2


def resumed(*rows: Row, **unlike: str) -> Study:
    began = {"commit": "abc", "cpu": "a CPU", "kernel": "a kernel"}
    about = {**ABOUT, "machine": began, "resumed": [{"date": "May", **began, **unlike}]}
    return replace(study_of(*rows), about=about)


def test_a_run_after_the_first_is_told_with_its_machine() -> None:
    assert "Continued" not in summary(study_of())
    later = resumed(cost_row("df", 1.0), commit="def", cpu="another CPU")
    said = (
        "Continued at May (commit def, another CPU, a kernel). What had no row by then was run, "
        "also where rows had been taken out. 1 of 1 rows do not tell in which of these runs they "
        "were made."
    )
    assert said in summary(later)
    assert said in page(later)


def test_one_machine_is_not_said_where_another_went_on_with_it() -> None:
    assert "ruler on one machine" in page(resumed(cost_row("df", 1.0), commit="def"))
    assert "ruler on one machine" not in page(resumed(cost_row("df", 1.0), cpu="another CPU"))


def test_rows_that_know_their_run_name_what_was_measured_in_it() -> None:
    first, second = {"commit": "abc", "cpu": "a CPU"}, {"commit": "def", "cpu": "another CPU"}
    study = resumed(cost_row("df", 1.0, **first), corrupted("df", "found", **second), **second)
    told = summary(study)
    assert "a kernel): rows of corruption are by this commit and processor." in told
    assert "do not tell" not in told


@pytest.mark.parametrize(
    ("study", "said"),
    [
        (study_of(), "One machine, at one time: its processors"),
        (resumed(), "One machine, at 2 times: its processors"),
        (resumed(cpu="x", commit="y"), "its 2 runs differ in commit, cpu, and the processors"),
    ],
)
def test_one_machine_at_one_time_is_said_only_where_it_was_so(study: Study, said: str) -> None:
    assert said in page(study)
    assert page(study).count("at one time:") == said.count("at one time:")


def test_every_experiment_is_in_the_summary_also_when_nothing_was_run() -> None:
    shown = summary(study_of())
    assert shown.count("Not run.") == len(TABLES)


@pytest.mark.parametrize("experiment", list(TABLES))
@pytest.mark.parametrize("status", ["failed", "left out", "not installed", "timed out"])
def test_no_experiment_is_left_out_in_silence(experiment: str, status: str) -> None:
    study = study_of({"experiment": experiment, "status": status, "reason": "the moon was full"})
    assert "the moon was full" in summary(study)
    assert "the moon was full" in page(study)


def test_no_cell_breaks_a_markdown_table() -> None:
    shown = summary(study_of(cost_row("a|b *c*\nd", 1.0)))
    (line,) = [one for one in shown.splitlines() if one.startswith("| &lt;a")]
    assert "a\\|b \\*c\\* d" in line


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234.0, "1,234 s"), (1.5, "1.5 s"), (0.0123, "12.3 ms"), (2.5e-6, "2.5 us")],
)
def test_durations(value: float, text: str) -> None:
    assert seconds(value) == text


def test_sizes() -> None:
    assert [size(one) for one in (12, 2048, 1020 << 20, 1.5 * 2**30)] == [
        "12 B", "2 KiB", "1,020 MiB", "1.5 GiB",
    ]  # fmt: skip
