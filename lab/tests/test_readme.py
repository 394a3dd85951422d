"""Figures that README.md and docs/compared.md quote agree with lab/results/figures.json."""

import re

import pytest

from lab.report import readme_picture, readme_table
from lab.report.quoted import known, quoted, rounded
from lab.report.readme_table import (
    AFTER,
    DEVICE,
    DURING,
    FAULTS,
    FLAX50,
    HEAD,
    KILLED,
    LINES,
    ON_DEVICE,
    RESNET50,
    RESNET152,
    Line,
)
from lab.report.results import SEPARATOR, number
from lab.writers.menu import ROOT

README = (ROOT / "README.md").read_text()
COMPARED = (ROOT / "docs" / "compared.md").read_text()
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
# By the name of a library in docs/compared.md that of its row in the results.
STORED = {"safetensors": "safetensors save_file", "torch_checkpointing, sync": "buffered",
          "torchsnapshot async_take": "torchsnapshot async_take"}  # fmt: skip
FAULTY = {"torch.save, fsync and rename by hand": "torch.save, fsync, renamed, fsync"}


TORCH_SAVE, DCP = "`torch.save`, fsync", "`dcp.async_save`"
EARLIER = "ResNet-50 with Adam, batch 16 of 3x64x64: a checkpoint every step"


def run_time(title: str, writer: str) -> float:
    return float(quoted("frameworks", title, writer, "run time")["value"])


def on_device(writer: str, column: str = "run time") -> float:
    return float(quoted("gpu", DEVICE, writer, column)["value"])


def faults(writer: str, *columns: str) -> int:
    return int(sum(quoted("torture", FAULTS, writer, each)["value"] for each in columns))


def tried(promise: str) -> int:
    """Trials of the long runs, by their name in docs/guarantees.md."""
    (found,) = re.findall(rf"\| {promise} \| `\w+` \| ([\d,]+) \|",
                          (ROOT / "docs" / "guarantees.md").read_text())  # fmt: skip
    return int(number(found))


def test_the_picture_is_drawn_from_the_figures() -> None:
    assert readme_picture.PICTURE.read_text() == readme_picture.picture()


def test_the_picture_shows_each_measured_run_time() -> None:
    text = readme_picture.PICTURE.read_text()
    for group in readme_picture.GROUPS:
        for writer, name in group.writers.items():
            value = readme_picture.measured(group, writer)["value"]
            assert re.search(rf">{re.escape(name)}<", text)
            assert f">{value:.2f}<" in text


def test_the_table_is_that_of_the_figures() -> None:
    assert readme_table.with_table(README) == README
    sections = {each.section for each in readme_table.LINES}
    for section in sections:
        assert f"[{section}]: lab/results/summary.md#{section}" in README


def test_bold_is_the_best_of_a_row_whoever_has_it() -> None:
    """Seen from the text, so that no rule of the generator is repeated here."""
    best = {}
    for text in readme_table.table().splitlines()[2:]:
        what, *cells, _ = (cell.strip() for cell in text.strip("|").split("|"))
        best[what] = [HEAD[at] for at, cell in enumerate(cells) if cell.startswith("**")]
    assert best["Reading one tensor"] == ["dcp.async_save"]
    assert best["Memory that a save takes, 1 = the state's size"] == ["torch.save + fsync"]
    kept = "Finished saves still there after a power cut, of 40"
    assert best[kept] == ["DeepFreeze", "torch.save + fsync"]
    assert best["A state loads after a power cut or kill in a save, of 90"] == []
    assert all(found == ["DeepFreeze"] for found in [*best.values()][:5])


def test_a_cell_that_is_not_compared_is_marked() -> None:
    apart = [cell for line in LINES for cell in line.cells if cell and not cell.is_compared]
    assert apart
    assert all(cell.note for cell in apart)
    made = Line("", "frameworks", [LINES[0].cells[0], *apart], digits=2)
    assert not readme_table.is_best(made, apart[0])


def claim(begins: str) -> list[float]:
    """The numbers of a claim of README.md, without those of its title and of names."""
    (text,) = re.findall(rf"^- \*\*{begins}\*\*(.*?)(?=\[[A-Z])", README, re.MULTILINE | re.DOTALL)
    return [number(each) for each in NUMBER.findall(re.sub(r"ResNet-\d+|H200|ext4", "", text))]


def test_the_claims_are_what_was_measured() -> None:
    ours = quoted("frameworks", RESNET50, "DeepFreeze", "run time")
    assert (
        claim("Saving costs little time.")
        == [
            2,  # cores
            ours["value"],
            ours["low"],
            ours["high"],
            run_time(RESNET50, TORCH_SAVE),
            run_time(RESNET50, DCP),
            4,  # steps
            *(on_device(writer) for writer in ON_DEVICE[:3] if writer),
        ]
    )
    flips = [faults(writer, "one bit flipped") for writer in (
        "DeepFreeze", "torch.save", "dcp.async_save, an id a step")]  # fmt: skip
    assert claim("Damage is found.") == [200, *flips]
    cuts, kills = tried("power cuts on ext4 and XFS"), tried("processes killed")
    assert claim("A durable checkpoint survives.") == [cuts, kills]


def test_what_stands_below_the_table_was_measured() -> None:
    (below,) = re.findall(r"<!-- end -->(.*?)## Short answers", README, re.DOTALL)
    text = " ".join(below.split())
    stall = quoted("frameworks", FLAX50, "DeepFreeze", "stall, ms")["value"]
    flax = run_time(FLAX50, "DeepFreeze")
    assert f"DeepFreeze's run time is {flax:.2f}, and it waits for {stall} ms" in text
    waited = [on_device(writer, "until durable") for writer in ON_DEVICE if writer]
    assert "with it they are {:.2f}, {:.2f}, {:.2f} and {:.2f}.".format(*waited) in text
    kept = faults("torch.save", *AFTER)
    loaded = faults("torch.save", *DURING, KILLED)
    assert f"`torch.save` kept {kept} of 40, and loaded after {loaded} of 90" in text
    step, ours, plain = (
        quoted("window-resnet50-torch-save", EARLIER, writer, "run time")["value"]
        for writer in ("no checkpoints", "DeepFreeze window, default", "torch.save + fsync")
    )
    assert f"steps of {step:.2f} s instead of 0.20 s" in text
    assert f"run time was {ours:.2f} and that of `torch.save` {plain:.2f}" in text


def rows_of(heading: str) -> list[list[str]]:
    """The table below a heading of docs/compared.md, without its head."""
    part = COMPARED.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")][2:]
    return [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines]


def test_a_save_alone_is_compared_by_what_was_measured() -> None:
    libraries = [row for row in rows_of("A save and a restore by themselves") if "times" not in
                 row[0] and "best" not in row[0]]  # fmt: skip
    assert len(libraries) == 7
    for name, *cells in libraries:
        row = STORED.get(name, name)
        values = {
            rounded(each["value"], digits)
            for each in known()["storage-big"]
            if each["where"].startswith(RESNET152) and row in each["where"].partition(SEPARATOR)[2]
            for digits in (0, 2)
        }
        shown = [NUMBER.findall(cell) for cell in cells]
        assert {each for found in shown for each in found} <= values | {"0"}, name


def sitting(section: str, title: str, rows: dict[str, str]) -> list[str]:
    """The cells of a sitting in docs/compared.md: a step alone, and the writers' run times."""
    step, *found = [quoted(section, title, each, "run time") if each else None for each in
                    rows.values()]  # fmt: skip
    assert step
    ranges = [each and f"{each['value']:.2f} [{each['low']:.2f}, {each['high']:.2f}]"
              for each in found]  # fmt: skip
    return [f"{step['value']:.2f} s", *(each or "-" for each in ranges)]


def test_the_sittings_beside_a_training_are_those_that_were_measured() -> None:
    told = [[cell.strip() for cell in row][2:] for row in rows_of("Beside a training")]
    window = {"step": "no checkpoints", "ours": "DeepFreeze window, default"}
    assert told[:3] == [
        sitting("frameworks", RESNET50, {"step": "none", "ours": "DeepFreeze",
                                         "torch": TORCH_SAVE, "dcp": DCP}),
        sitting("window-resnet50-torch-save", EARLIER, {**window, "torch": "torch.save + fsync",
                                                        "dcp": ""}),
        sitting("window-resnet50-every-step", EARLIER, {**window, "torch": "", "dcp": ""}),
    ]  # fmt: skip
    study = "Overhead against the interval / resnet50 in PyTorch"
    writers = "DeepFreeze window, default", "torch.save + fsync", "dcp.async_save, stager re-used"
    longer = [quoted("study", study, each, "every step")["value"] for each in writers]
    assert told[3] == ["0.35 s", *(f"{1 + each / 100:.2f}" for each in longer)]


def test_the_time_that_a_save_adds_was_measured() -> None:
    text = " ".join(COMPARED.split())
    step = quoted("frameworks", RESNET50, "none", "run time")["value"]
    quoted_sitting = [1000 * step * (run_time(RESNET50, writer) - 1)
                      for writer in ("DeepFreeze", TORCH_SAVE)]  # fmt: skip
    earlier = [quoted("window-resnet50-torch-save", EARLIER, writer, "added per save")["value"]
               for writer in ("DeepFreeze window, default", "torch.save + fsync")]  # fmt: skip
    (ours, other), (ours_earlier, other_earlier) = quoted_sitting, earlier
    assert f"added {ours:.0f} and {ours_earlier:.0f} ms with DeepFreeze" in text
    assert f"{other:.0f} and {other_earlier:.0f} ms with `torch.save`" in text


@pytest.mark.parametrize("row", rows_of("The same faults for all"), ids=lambda row: str(row[0]))
def test_the_faults_are_those_that_were_tried(row: list[str]) -> None:
    writer = FAULTY.get(row[0], row[0])
    columns = (("one bit flipped",), AFTER, DURING, (KILLED,))
    assert [int(cell) for cell in row[1:]] == [faults(writer, *each) for each in columns]


def test_what_is_told_of_a_gpu_was_measured() -> None:
    text = " ".join(COMPARED.partition("\n## On a GPU\n")[2].split())
    rows = {each["where"].rpartition(SEPARATOR)[2]: each["value"] for each in known()["gpu"]
            if each["what"] == "run time" and "ResNet-152" in each["where"]}  # fmt: skip
    assert (
        f"DeepFreeze {rows['DeepFreeze']:.2f}, "
        f"torchsnapshot {rows['torchsnapshot.async_take']:.2f}, "
        f"`torch.save` {rows['torch.save + fsync']:.2f}, "
        f"torch_checkpointing {rows['torch_checkpointing async']:.2f}, "
        f"`dcp.async_save` {rows['dcp.async_save, its default stager']:.2f}."
    ) in text
    waited = [on_device(writer, "until durable") for writer in (
        "DeepFreeze", "torchsnapshot.async_take", "torch.save + fsync",
        "torch_checkpointing async", "dcp.async_save, its default stager")]  # fmt: skip
    assert "with it they are {:.2f}, {:.2f}, {:.2f}, {:.2f} and {:.2f}.".format(*waited) in text
