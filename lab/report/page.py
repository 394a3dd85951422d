"""HTML pages that need nothing but themselves: no script, nothing from elsewhere."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from lab import experiments
from lab.report import method
from lab.report.charts import charts
from lab.report.findings import findings
from lab.report.findings.common import Finding
from lab.report.key_figures import key_figures, lead
from lab.report.markdown import place
from lab.report.method import on_one_machine, where
from lab.report.summary import Group, Study
from lab.report.tables import tables
from lab.report.tables.common import framework, writer
from lab.report.tables.ranks import NAMES
from lab.report.takeaways import takeaways

TITLE = "What checkpoints cost, hold and survive"
HERE = Path(__file__).parent


def rendered(template: str, title: str, **content: Any) -> str:
    """Text that comes in is escaped, unless it is Markup."""
    loader = FileSystemLoader(HERE / "templates")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    style = Markup(HERE.joinpath("page.css").read_text())
    return made.get_template(template).render(title=title, style=style, **content) + "\n"


def page(study: Study) -> str:
    known = [experiments.load(name) for name in experiments.NAMES]
    themes: dict[str, list[Finding]] = {}
    for found in findings(study):
        themes.setdefault(found.theme, []).append(found)
    sections = [
        {"name": one.name, "title": one.title, "question": one.question,
         "charts": charts(study, one.name), "tables": tables(study, one.name)} for one in known
    ]  # fmt: skip
    return rendered(
        "study.html.j2", TITLE,
        lead=lead(study), place=place(study).replace("`", ""), tiles=key_figures(study),
        themes=themes, titles={one.name: one.title for one in known}, sections=sections,
        takeaways=takeaways(study), not_measured=list(not_measured(study)),
        where=where(study), machine=list(machine(study)),
        machine_title="The machine" + ("" if on_one_machine(study) else " that it began on"),
    )  # fmt: skip


def not_measured(study: Study) -> Iterator[tuple[str, str]]:
    """Every measurement that is not ok, by its reason; and those that were not run at all."""
    for name in experiments.NAMES:
        groups = study.groups(name)
        if not groups:
            yield name, ": not run"
        found: dict[tuple[str, str], list[str]] = {}
        for group in groups:
            for reason in group.reasons:
                found.setdefault((group.text("status"), reason), []).append(subject(group))
        for (status, reason), subjects in found.items():
            yield name, f", {', '.join(dict.fromkeys(subjects))}: {status}: {reason}"


def subject(group: Group) -> str:
    """Enough to find it: who, of what, and in which way."""
    strategy, ranks = group.text("strategy"), group["ranks"]
    words = (
        writer(group), framework(group), NAMES.get(strategy, strategy),
        f"{ranks} ranks" if ranks else "", group.text("fault"), group.text("bits"),
    )  # fmt: skip
    return " ".join(filter(None, words)) or group.text("case")


def machine(study: Study) -> Iterator[str]:
    for name, value in study.about.get("machine", {}).items():
        yield f"{name.replace('_', ' ')}: {value}"
    if told := method.told(study):
        yield told
