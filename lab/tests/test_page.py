"""The HTML page: it needs nothing but itself, says all, and lets no text become markup."""

import re
from html.parser import HTMLParser

import pytest

from lab import experiments
from lab.measure.row import Row
from lab.report.charts import charts
from lab.report.key_figures import key_figures
from lab.report.page import page
from lab.report.plots import Bar, dots
from lab.report.table import seconds
from lab.tests.test_report import corrupted, cost_row, crashed, scaled, study_of

VOID = {"meta"}
EVIL = '<b onclick="x">&amp;'


class Balanced(HTMLParser):
    """Fails where an element is not closed in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [str(value) for name, value in attrs if name == "id"]
        self.links += [str(value) for name, value in attrs if name in ("href", "src")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def parsed(text: str) -> Balanced:
    found = Balanced()
    found.feed(text)
    assert found.open == []
    return found


def whole() -> str:
    return page(
        study_of(
            cost_row("df", 0.01), cost_row("torch-save", 0.3), corrupted("torch-save", "silent"),
            crashed("df", "killed in the save", "keeps one"),
            *(scaled(name, ranks=ranks) for name in ("rank0", "deepfreeze") for ranks in (1, 2)),
            *(scaled("rank0", nodes=n, simulated=True, scaling="") for n in (1, 4096)),
        )
    )  # fmt: skip


def test_it_needs_nothing_from_elsewhere() -> None:
    found = parsed(whole())
    assert "<script" not in whole()
    assert "url(" not in whole()
    assert "@import" not in whole()
    assert all(link.startswith("#") for link in found.links)
    assert {link[1:] for link in found.links} <= set(found.ids)


def test_every_experiment_has_its_section_measured_or_not() -> None:
    for text in (whole(), page(study_of())):
        assert set(experiments.NAMES) < set(parsed(text).ids)
    assert page(study_of()).count(": not run") == len(experiments.NAMES)


def test_each_reason_is_told_once_with_all_that_it_holds_for() -> None:
    rows = [cost_row(name, 1.0, status="failed", reason="it broke") for name in ("one", "two")]
    last = page(study_of(*rows)).split('id="not-measured"')[1]
    assert last.count("it broke") == 1
    assert "&lt;one&gt; PyTorch, &lt;two&gt; PyTorch: failed: it broke" in last


def test_no_text_becomes_markup() -> None:
    rows: list[Row] = [
        cost_row("df", 1.0, title=EVIL, workload=EVIL),
        cost_row("bad", 1.0, title=EVIL, status="failed", reason=EVIL),
        crashed("x", EVIL, EVIL, title=EVIL),
    ]
    text = page(study_of(*rows))
    parsed(text)
    assert "<b onclick" not in text
    assert "&lt;b onclick" in text


def test_what_is_simulated_is_marked_in_its_chart_and_in_its_tables() -> None:
    text = whole().split('id="scale"')[1].split('id="determinism"')[0]
    assert re.search(r"4,096 nodes <span class=\"simulated\">SIMULATED", text)
    assert "seconds, SIMULATED</text>" in text
    tables = re.findall(r"<h3>([^<]*)(<span class=\"simulated\">)?", text)
    assert [bool(mark) for title, mark in tables if "Theta" in title] == [True] * 6
    assert not any(mark for title, mark in tables if title.startswith("PyTorch"))


def test_a_chart_without_rows_is_not_made() -> None:
    assert all(charts(study_of(), name) == [] for name in experiments.NAMES)
    failed = cost_row("df", 1.0, status="failed", reason="no")
    assert charts(study_of(failed), "cost") == []


def test_a_writer_that_mixes_steps_says_so_in_the_chart() -> None:
    mixing: Row = {"experiment": "tearing", "writer": "torn", "title": "torn", "verdict": "torn"}
    stall, durable = charts(study_of(cost_row("torn", 0.1), cost_row("df", 0.2), mixing), "cost")
    assert "&lt;torn&gt; (mixes steps)" in stall.picture
    assert "mixes steps" not in durable.picture


@pytest.mark.parametrize(("median", "place"), [(0.001, 0), (0.01, 0.5), (0.1, 1)])
def test_dots_stand_at_their_powers_of_ten(median: float, place: float) -> None:
    text = dots([Bar("x", median, 0.001, 0.1)], seconds)
    found = re.search(r'd="M ([\d.]+) [\d.]+ \nL ([\d.]+) [^>]*stroke-width: 3;', text)
    dot = re.search(r'href="#\w+" x="([\d.]+)"', text)
    assert found is not None
    assert dot is not None
    low, high = map(float, found.groups())
    assert (float(dot[1]) - low) / (high - low) == pytest.approx(place, abs=1e-4)


def sized(writer: str, stall: float, workload: str, size: int, framework: str = "jax") -> Row:
    about = {"workload": workload, "state_bytes": size, "framework": framework}
    return cost_row(writer, stall, **about)


def test_the_first_figure_is_of_the_largest_state_and_of_pytorch_whatever_the_order() -> None:
    rows = [
        sized("df", 0.5, "small", 9), sized("peer", 0.9, "small", 9),
        sized("df-jax", 0.4, "large", 10), sized("peer", 0.2, "large", 10),
        sized("df", 0.1, "large", 10, "pytorch"), sized("torch", 0.3, "large", 10, "pytorch"),
    ]  # fmt: skip
    for shuffled in (rows, rows[::-1], rows[3:] + rows[:3]):
        (found,) = key_figures(study_of(*shuffled))
        assert found.figure == "100 ms"
        assert "largest state measured (large, PyTorch)" in found.caption
        assert "shorter one in 1 of 2 frameworks" in found.caption


def test_the_first_sentence_is_of_what_was_measured() -> None:
    one = page(study_of(cost_row("torch-save", 0.3)))
    assert (
        "1 checkpoint writer of PyTorch (DeepFreeze&#39;s own: 0), measured by the same ruler on "
        "one machine: how long a save holds the training up.</p>"
    ) in one
    two = page(study_of(corrupted("df-jax", "found"), corrupted("orbax", "silent")))
    assert "2 checkpoint writers of JAX (DeepFreeze&#39;s own: 1)" in two
    assert "one machine: who notices a changed bit.</p>" in two
    assert "No checkpoint writer was measured yet." in page(study_of())


def test_writers_of_ours_are_counted_apart() -> None:
    study = study_of(
        corrupted("df", "found"), corrupted("careful", "found"), corrupted("careless", "silent")
    )
    (found,) = key_figures(study)
    assert found.figure == "1 of 2"
    assert "of DeepFreeze's own 1 of 1" in found.caption
