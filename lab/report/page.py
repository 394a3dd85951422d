"""One HTML page that needs nothing but itself: no script, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

from lab import experiments
from lab.report import packages, svg
from lab.report.charts import Chart, charts
from lab.report.findings import findings
from lab.report.findings.common import Finding
from lab.report.html import SIMULATED, element, finding, items, table
from lab.report.key_figures import key_figures
from lab.report.lead import lead
from lab.report.markdown import place
from lab.report.method import METHOD, limits
from lab.report.sittings import on_one_machine
from lab.report.summary import Group, Study
from lab.report.tables import tables
from lab.report.tables.common import framework, writer
from lab.report.tables.ranks import NAMES
from lab.report.takeaways import takeaways

TITLE = "What checkpoints cost, hold and survive"
STYLE = Path(__file__).with_name("page.css")


def page(study: Study) -> str:
    head = f'<meta charset="utf-8"><title>{TITLE}</title>'
    head += '<meta name="viewport" content="width=device-width, initial-scale=1">'
    head += f"<style>{STYLE.read_text()}{svg.STYLE}</style>"
    body = "\n".join(parts(study))
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{body}</body></html>\n'


def parts(study: Study) -> Iterator[str]:
    yield element("h1", TITLE)
    yield element("p", escape(lead(study)))
    yield element("p", escape(place(study).replace("`", "")), class_="dim")
    yield tiles(study)
    yield contents()
    yield from all_findings(study)
    yield from advice(study)
    for name in experiments.NAMES:
        yield from section(study, name)
    yield from not_measured(study)
    yield heading("method", "Method and limits")
    yield items(map(escape, METHOD)) + element("h3", "Limits") + items(map(escape, limits(study)))
    yield machine(study)


def heading(identity: str, text: str) -> str:
    return element("h2", escape(text), id=identity)


def tiles(study: Study) -> str:
    shown = "".join(
        element("div", element("b", escape(one.figure)) + element("span", escape(one.caption)),
                class_="tile")
        for one in key_figures(study)
    )  # fmt: skip
    return element("div", shown, class_="tiles")


def contents() -> str:
    links = [
        ("findings", "Findings"),
        ("takeaways", "Takeaways"),
        *((name, experiments.load(name).title) for name in experiments.NAMES),
        ("not-measured", "What was not measured, and why"),
        ("method", "Method and limits"),
    ]
    shown = "".join(element("li", link(name, text)) for name, text in links)
    return element("nav", element("ol", shown))


def link(name: str, text: str) -> str:
    return element("a", escape(text), href=f"#{name}")


def all_findings(study: Study) -> Iterator[str]:
    yield heading("findings", "Findings")
    by_theme: dict[str, list[Finding]] = {}
    for found in findings(study):
        by_theme.setdefault(found.theme, []).append(found)
    if not by_theme:
        yield element("p", "Nothing was measured yet.")
    shown = "".join(of_theme(theme, some) for theme, some in by_theme.items())
    yield element("div", shown, class_="themes")


def of_theme(theme: str, some: list[Finding]) -> str:
    title = element("p", link(theme, experiments.load(theme).title), class_="theme")
    return element("div", title + items(map(finding, some)))


def advice(study: Study) -> Iterator[str]:
    yield heading("takeaways", "Takeaways")
    yield element("p", "Each follows from rows of this study, and names them.", class_="dim")
    columns = [
        element("div", element("h3", escape(audience.capitalize())) + items(map(finding, some)))
        for audience, some in takeaways(study).items()
    ]
    yield element("div", "".join(columns), class_="advice")


def section(study: Study, name: str) -> Iterator[str]:
    known = experiments.load(name)
    yield heading(name, known.title)
    yield element("p", escape(known.question))
    yield element("div", "".join(map(chart, charts(study, name))), class_="charts")
    found = tables(study, name)
    if not found:
        yield element("p", "Not run.", class_="dim")
    yield from map(table, found)


def chart(shown: Chart) -> str:
    title = escape(shown.title) + (f" {SIMULATED}" if shown.simulated else "")
    caption = element("p", escape(shown.caption), class_="dim")
    drawn = element("div", shown.html, class_="curves")
    return element("div", element("h3", title) + caption + drawn, class_="chart")


def not_measured(study: Study) -> Iterator[str]:
    """Every measurement that is not ok, by its reason; and what was not run at all."""
    yield heading("not-measured", "What was not measured, and why")
    said = []
    for name in experiments.NAMES:
        groups = study.groups(name)
        if not groups:
            said.append(f"{element('b', name)}: not run")
        found: dict[tuple[str, str], list[str]] = {}
        for group in groups:
            for reason in group.reasons:
                key = (group.text("status"), reason)
                found.setdefault(key, []).append(subject(group))
        said += [
            f"{element('b', name)}, {escape(', '.join(dict.fromkeys(subjects)))}: "
            f"{escape(status)}: {escape(reason)}"
            for (status, reason), subjects in found.items()
        ]  # fmt: skip
    yield items(said) if said else element("p", "Nothing: all that was planned was measured.")


def subject(group: Group) -> str:
    """Enough to find it: who, of what, and in which way."""
    strategy, ranks = group.text("strategy"), group["ranks"]
    words = (
        writer(group), framework(group), NAMES.get(strategy, strategy),
        f"{ranks} ranks" if ranks else "", group.text("fault"), group.text("bits"),
    )  # fmt: skip
    return " ".join(filter(None, words)) or group.text("case")


def machine(study: Study) -> str:
    known = study.about.get("machine", {})
    texts = (f"{name.replace('_', ' ')}: {value}" for name, value in known.items())
    shown = map(escape, filter(None, (*texts, packages.told(study))))
    name = "The machine" if on_one_machine(study) else "The machine that it began on"
    return element("h3", name) + items(shown)
