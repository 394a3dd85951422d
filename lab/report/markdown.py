"""The report as Markdown: the findings, and every table."""

from collections.abc import Iterator

from lab import experiments
from lab.report import method
from lab.report.findings import findings
from lab.report.method import later
from lab.report.summary import Study
from lab.report.table import Table
from lab.report.tables import tables
from lab.report.takeaways import takeaways


def summary(study: Study) -> str:
    return "\n".join(lines(study)) + "\n"


def lines(study: Study) -> Iterator[str]:
    yield "# What checkpoints cost, hold and survive here"
    yield from ("", place(study))
    if known := method.told(study):
        yield from ("", known)
    yield from ("", "## Findings", "")
    yield from (f"- {found.sentence}" for found in findings(study))
    for audience, advice in takeaways(study).items():
        yield from ("", f"## Takeaways {audience}", "")
        yield from (f"- {found.sentence}" for found in advice)
    for name in experiments.NAMES:
        yield from section(study, name)


def place(study: Study) -> str:
    about = study.about
    size = "`--quick`" if about["quick"] else "in full"
    machine = about.get("machine", {})
    known = [machine.get(name) for name in ("date", "cpu", "kernel", "file_system")]
    if commit := machine.get("commit"):
        known.append(f"commit {commit}")
    began = ", ".join([*(str(one) for one in known if one), f"seed {about['seed']}", size])
    return f"{began}.{later(study)}"


def section(study: Study, name: str) -> Iterator[str]:
    known = experiments.load(name)
    yield from ("", f"## {known.title}", "", known.question)
    found = tables(study, name)
    if not found:
        yield from ("", "Not run.")
    for table in found:
        yield from shown(table)


def shown(table: Table) -> Iterator[str]:
    if table.title:
        yield from ("", f"### {table.title}{', SIMULATED' if table.simulated else ''}")
    yield ""
    yield row(table.columns)
    yield row(["---"] * len(table.columns))
    for line in table.lines:
        texts = [cell.text for cell in line.cells]
        texts += [""] * (len(table.columns) - len(texts))
        yield row(texts, bold=line.ours)
    for note in table.notes:
        yield from ("", escaped(note))


def row(texts: list[str] | tuple[str, ...], bold: bool = False) -> str:
    """`bold`: its first cell."""
    cells = [escaped(text) for text in texts]
    if bold:
        cells[0] = f"**{cells[0]}**"
    return f"| {' | '.join(cells)} |"


def escaped(text: str) -> str:
    """Neither ends the cell nor is taken for markup."""
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").split())
