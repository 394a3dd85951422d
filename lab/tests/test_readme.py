"""Figures that README.md and docs/compared.md quote agree with lab/results/figures.json."""

import re

import pytest

from lab.report import readme_picture, readme_table
from lab.report.quoted import known, quoted, rounded
from lab.report.readme_table import AFTER, DURING, FAULTS, FLAX50, RESNET50, RESNET152
from lab.report.results import SEPARATOR, number
from lab.writers.menu import ROOT

README = (ROOT / "README.md").read_text()
COMPARED = (ROOT / "docs" / "compared.md").read_text()
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
# By the name of a library in docs/compared.md that of its row in the results.
STORED = {"safetensors": "safetensors save_file", "torch_checkpointing, sync": "buffered",
          "torchsnapshot async_take": "torchsnapshot async_take"}  # fmt: skip
FAULTY = {"torch.save, fsync and rename by hand": "torch.save, fsync, renamed, fsync"}


def run_time(title: str, writer: str) -> float:
    return float(quoted("frameworks", title, writer, "run time")["value"])


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


def claim(begins: str) -> list[float]:
    """The numbers of a claim of README.md, without those of its title."""
    (text,) = re.findall(rf"^- \*\*{begins}\*\*(.*?)(?=^- |^!)", README, re.MULTILINE | re.DOTALL)
    return [number(each) for each in NUMBER.findall(text.replace("ResNet-50", ""))]


def test_the_claims_are_what_was_measured() -> None:
    assert claim("Checkpoints cost little.") == [
        run_time(RESNET50, "DeepFreeze"),
        run_time(RESNET50, "`torch.save`, fsync"),
        run_time(RESNET50, "`dcp.async_save`"),
    ]
    flips = [faults(writer, "one bit flipped") for writer in (
        "DeepFreeze", "torch.save", "dcp.async_save, an id a step")]  # fmt: skip
    assert claim("Damage is found.") == [200, *flips]
    cuts, kills = tried("power cuts on ext4 and XFS"), tried("processes killed")
    assert claim("A finished save survives.") == [cuts, kills]


def test_what_stands_below_the_table_was_measured() -> None:
    (below,) = re.findall(r"<!-- end -->(.*?)## Where", README, re.DOTALL)
    text = " ".join(below.split())
    assert f"DeepFreeze's run time is {run_time(FLAX50, 'DeepFreeze'):.2f}" in text
    kept, restored = faults("torch.save", *AFTER), faults("torch.save", "killed in the save")
    assert f"without these it kept {kept} of 40 and restored {restored} of 50" in text


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


@pytest.mark.parametrize("row", rows_of("The same faults for all"), ids=lambda row: str(row[0]))
def test_the_faults_are_those_that_were_tried(row: list[str]) -> None:
    writer = FAULTY.get(row[0], row[0])
    columns = (("one bit flipped",), AFTER, DURING, ("killed in the save",))
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
