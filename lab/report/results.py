"""The page of results, and the figures on it that documents quote.

`python -m lab.report.results RAW` reads a directory in which the benchmarks and `deepfreeze study`
have left what they measured (`*.md`, `growth.json`, `keras-*.json`, `study/`), and writes
lab/results/summary.md and lab/results/figures.json anew: the parts that RAW has, the others stay.
The raw files are not kept in the tree.
"""

import json
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from lab.experiments import growth
from lab.report import markdown
from lab.report.findings.speed import signed_errors
from lab.report.grid import grid
from lab.report.summary import Study, read
from lab.report.tables.common import split

RESULTS = Path(__file__).resolve().parents[1] / "results"
PAGE, FIGURES = RESULTS / "summary.md", RESULTS / "figures.json"
STUDY = "study"
SEPARATOR = " / "
INTRODUCTION = """\
# Results

The results that documents quote, on one page: the benchmarks, which
[lab/README.md](../README.md) explains, and one whole run of `deepfreeze study`
([lab/STUDY.md](../STUDY.md)). `figures.json` beside this page has all figures that documents quote.
Other tables, raw measurements, every round and every trial are in the history:
`git show 763d3f3:bench/results` and `git show 763d3f3:docs/study`, of which
`python -m lab.report.results RAW` makes those parts of this page anew.
"""
# The sections of the page, each with the question that it answers.
QUESTIONS = {
    "frameworks": "What do saves cost a training, beside the writers of its own framework?",
    "window-resnet50-every-step": "What does a save after every step cost ResNet-50?",
    "window-resnet50-every-4th": "And a save at every 4th step?",
    "window-resnet50-torch-save": "And beside `torch.save` with a sync?",
    "window-tiers": "What do a second tier and an agent add?",
    "window-others-every-step": "What does a save after every step cost other networks?",
    "storage-big": "What do a save and a restore cost by themselves, of large states?",
    "growth": "How do these costs grow with bytes and with the number of tensors?",
    "gpu": "What do saves cost a training on a GPU, and are they right?",
    "ranks": "What do several ranks cost, and what do they share?",
    "node-failures": "How much time does a training lose on nodes that fail? Simulated.",
    "keras": "What do saves cost in `fit()`, and which formats bring a training back?",
    "torture": "What do flipped bits, power cuts and kills leave of a checkpoint?",
    "torture-captured": "And of a save that is captured and not yet written?",
    "adoption": "Would it be quicker to take over the memory of the state than to copy it?",
    "study": "All of it for 39 writers in four frameworks, in one run.",
}
# Of a machine this is shown; the history has the rest.
MACHINE = ("date", "cores", "cpu", "torch", "commit")
MACHINE_LINE = re.compile(r"- ([a-z][a-z ]*): (.*)")
NOT_SHOWN = ("How each is used",)
NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
CELL = re.compile(
    rf"\**(?:1 = )?(?P<value>{NUMBER})(?: \[(?P<low>{NUMBER}), (?P<high>{NUMBER})\])?"
    rf"(?P<unit>(?: ?%| of \d[\d,]*| ?[A-Za-z]+(?:/[A-Za-z]+)?)?)(?!\w)"
)
IN_TEXT = re.compile(rf"(?<![\w.])({NUMBER}) ?(ms|s|%|MiB|times|x|of \d+)(?=[\s,.;:)])")
HEADING = re.compile(r"(#+) (.*)|\*\*(.*)\*\*.*")
# Of the study: the sections of which documents quote single cells. Of all others, the findings.
QUOTED = (
    "The cost of a save / resnet50", "Overhead against the interval / combo",
    "Overhead against the interval / resnet50", "Several ranks / PyTorch, combo, weak",
    "Several ranks / NT3 on a Theta-like machine: slowest", "Findings", "Takeaways",
    "Silent data corruption / What flips do",
)  # fmt: skip
EVERY = "every"  # the column that says how often a row's training saves
QUOTED_COSTS = ("Stall", "Durable", "CPU")
ROWS = "rows"
ERRORS = ("median", "least", "greatest")
MOST_RANKS = 8

Row = dict[str, Any]


LINE_MAX = 120
INDENT = "  "  # of a line that continues the one before
FENCE = "`" * 3


def page(raw: Path) -> str:
    """With all measurements. `condensed` says which of them are kept."""
    parts = [INTRODUCTION, *(section(key, text) for key, text in pages(raw).items())]
    return wrapped("\n".join(parts))


def condensed(text: str, before: str = "") -> str:
    """The page that is read: in the order of its contents, with the tables that are quoted.

    `before` is an earlier one, of which those parts stay that `text` has not.
    """
    by_key = sections(before)
    by_key |= {key: without_details(part, key) for key, part in sections(text).items()}
    contents = [f"| [{key}](#{key}) | {what} |" for key, what in QUESTIONS.items() if key in by_key]
    head = [wrapped(INTRODUCTION), "| Section | Question |", "|---|---|", *contents, ""]
    kept = (f"## {by_key[key]}" for key in QUESTIONS if key in by_key)
    return "\n".join([*head, *kept])


def sections(text: str) -> dict[str, str]:
    _, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    return {part.partition("\n")[0]: part.rstrip() + "\n" for part in parts}


def without_details(part: str, key: str) -> str:
    """Machines on one line; of the study only the quoted facts, of all else no long lists."""
    heads: dict[int, str] = {}
    lines: list[str] = []
    machine: dict[str, str] = {}
    for line in part.splitlines():
        heads = entered(heads, line)
        found = MACHINE_LINE.fullmatch(line)
        if found and (machine or found[1] == MACHINE[0]):
            machine[found[1]] = found[2]
            continue
        if machine:
            told = (f"{name} {machine[name]}" for name in MACHINE if name in machine)
            lines.append(f"Measured with: {', '.join(told)}.")
            machine = {}
        if is_shown(line, SEPARATOR.join(heads.values()), key):
            lines.append(line)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def is_shown(line: str, place: str, key: str) -> bool:
    if key != STUDY or not place:
        return not place.endswith(NOT_SHOWN)
    if place.startswith(QUOTED):
        return True
    return SEPARATOR not in place and (line.startswith("### ") or line.endswith("?") or not line)


def wrapped(text: str) -> str:
    """Without long lines; tables, headings and code stay as they are."""
    wrap = textwrap.TextWrapper(
        LINE_MAX, subsequent_indent=INDENT, break_long_words=False, break_on_hyphens=False
    )
    lines: list[str] = []
    for line in text.splitlines():
        kept = len(line) <= LINE_MAX or line.startswith(("|", "#", FENCE, " "))
        lines += [line] if kept else wrap.wrap(line)
    return "\n".join([*lines, ""])


def unwrapped(text: str) -> str:
    parts = text.split(FENCE)
    parts[::2] = [re.sub(rf"\n{INDENT}(?=\S)", " ", part) for part in parts[::2]]
    return FENCE.join(parts)


def pages(raw: Path) -> dict[str, str]:
    """By name; that of the study comes last."""
    found = {path.stem: path.read_text() for path in sorted(raw.glob("*.md"))}
    if (raw / "growth.json").exists():
        found["growth"] = growth_page(json.loads((raw / "growth.json").read_text()))
    if (raw / "keras-fit.json").exists():
        found["keras"] = keras_page(raw)
    if (raw / STUDY).exists():
        found[STUDY] = markdown.summary(read(raw / STUDY))
    return found


def section(key: str, text: str) -> str:
    """One level down, under the name of the page: links go there."""
    lines = [f"#{line}" if line.startswith("#") else line for line in text.splitlines()]
    title = lines[0].lstrip("# ")
    return "\n".join([f"## {key}", "", f"*{title}.*", *lines[1:], ""])


def growth_page(found: Row) -> str:
    lines = ["# How costs grow with bytes and with tensors", ""]
    lines += [f"Machine: {found['machine']['cpu']}, {found['machine']['date'][:10]}.", ""]
    return "\n".join([*lines, "```", growth.text(found["points"]), "```"])


def keras_page(raw: Path) -> str:
    fit = json.loads((raw / "keras-fit.json").read_text())
    resumed = json.loads((raw / "keras-resume.json").read_text())
    lines = ["# Keras: the cost of saves in fit(), and which formats bring a training back", ""]
    lines += grid(["saver", "run time", "blocked"], ())
    for name, seconds in fit["seconds"].items():
        ratios = [a / b for a, b in zip(seconds, fit["seconds"]["none"], strict=True)]
        waits = [1000 * each for each in fit["blocked_seconds"][name]]
        blocked = f"{spread(waits, 1)} ms" if waits else "-"
        lines.append(f"| {name} | {spread(ratios, 3)} | {blocked} |")
    lines += ["", *grid(["format", *next(iter(resumed.values()))], ())]
    for name, verdicts in resumed.items():
        lines.append(f"| {name} | {' | '.join(verdicts.values())} |")
    return "\n".join(lines)


def spread(values: list[float], digits: int) -> str:
    return f"{median(values):.{digits}f} [{min(values):.{digits}f}, {max(values):.{digits}f}]"


NOT_QUOTED = ("storage", "storage-p1b1", "window-resnet50")


def figures(text: str) -> dict[str, list[Row]]:
    """Of the page: by the name of each part its figures, in order."""
    found: dict[str, list[Row]] = {}
    for part in re.split(r"^## ", unwrapped(text), flags=re.MULTILINE)[1:]:
        key, _, body = part.partition("\n")
        if key in NOT_QUOTED:
            continue
        rows = [*cells(body), *(sentences(body) if key == STUDY else ())]
        found[key] = [row for row in rows if key != STUDY or is_quoted(row)]
    return found


def is_quoted(row: Row) -> bool:
    """Of the study, documents quote no bare counts; of its first table these columns."""
    if row["where"].startswith("The cost of a save") and row["what"] not in QUOTED_COSTS:
        return False
    return bool(row["unit"]) and row["where"].startswith(QUOTED)


def beyond_tables(study: Study) -> Iterator[Row]:
    """Figures of the study's rows that documents quote and no table shows."""
    spent = {(row["experiment"], row["case"]): row["wall_seconds"] for row in study.rows}
    minutes = sum(float(str(each)) for each in spent.values()) / 60
    yield {"what": "its cases", "value": round(minutes, 1), "unit": "minutes", "where": ROWS}
    groups = study.groups("scale")
    compared = [group for group in groups if group["quantity"] and group["ranks"]]
    for (strategy,), found in split(compared, "strategy").items():
        for which, value in zip(ERRORS, re.findall(r"[-+]\d+", signed_errors(found)), strict=True):
            what = f"error of the model, {which}"
            yield {"what": what, "value": int(value), "unit": "%", "where": f"{ROWS} / {strategy}"}
    most = [group for group in groups if group["ranks"] == MOST_RANKS and group.figure("imbalance")]
    for (framework, strategy), found in split(most, "framework", "strategy").items():
        figure = found[0].figure("imbalance")
        where = f"{ROWS} / {framework}, {MOST_RANKS} ranks / {strategy}"
        for digits in (2, 4) if figure else ():
            value = round(figure.median, digits) if figure else 0.0
            yield {"what": "imbalance", "value": value, "unit": "times", "where": where}


def cells(body: str) -> Iterator[Row]:
    """Of the tables: every cell that begins with a number."""
    heads: dict[int, str] = {}
    columns: list[str] = []
    for line in body.splitlines():
        heads = entered(heads, line)
        if not line.startswith("|"):
            columns = []
        if not line.startswith("| ") or line.startswith("| ---"):
            continue
        texts = [one.strip() for one in line.strip("|").split(" | ")]
        if not columns:
            columns = texts
        else:
            yield from cells_of(columns, texts, list(heads.values()))


def entered(heads: dict[int, str], line: str) -> dict[int, str]:
    """The headings above, once this line is read."""
    heading = HEADING.fullmatch(line)
    if heading is None:
        return heads
    level = len(heading[1] or "######")
    title = (heading[2] or heading[3]).partition(", a state of")[0]
    return {**{n: one for n, one in heads.items() if n < level}, level: title}


def cells_of(columns: list[str], texts: list[str], heads: list[str]) -> Iterator[Row]:
    interval = [f"every {one}" for name, one in zip(columns, texts, strict=False) if name == EVERY]
    others = [(name, one) for name, one in zip(columns, texts, strict=False) if name != EVERY]
    named = [one for _, one in others if one and not CELL.match(one)][:1]
    where = SEPARATOR.join([*heads, *interval, *(one.strip("*") for one in named)])
    for column, text in others:
        match = CELL.match(text)
        if match and column:
            yield {"what": column, **figure(match), "where": where}


def figure(match: re.Match[str]) -> Row:
    row: Row = {"value": number(match["value"]), "unit": match["unit"].strip()}
    if match["low"]:
        row |= {"low": number(match["low"]), "high": number(match["high"])}
    return row


def number(text: str) -> float:
    value = float(text.replace(",", ""))
    return int(value) if value.is_integer() else value


def sentences(body: str) -> Iterator[Row]:
    """The figures in lines of text, findings above all."""
    heads: dict[int, str] = {}
    for line in body.splitlines():
        heads = entered(heads, line)
        if not line.startswith(("|", "#")):
            where = SEPARATOR.join(heads.values())
            for value, unit in IN_TEXT.findall(line):
                what = line.removeprefix("- ")[:40]
                yield {"what": what, "value": number(value), "unit": unit, "where": where}


def grouped(found: dict[str, list[Row]]) -> dict[str, dict[str, list[Row]]]:
    """By part and place, as figures.json has them: a place is written once for its figures."""
    parts: dict[str, dict[str, list[Row]]] = {}
    for key, rows in found.items():
        places = parts.setdefault(key, {})
        for row in rows:
            figure_there = {name: value for name, value in row.items() if name != "where"}
            places.setdefault(row["where"], []).append(figure_there)
    return parts


def stored() -> dict[str, list[Row]]:
    """The figures of figures.json, by part."""
    parts = json.loads(FIGURES.read_text())
    return {
        key: [{**row, "where": where} for where, rows in places.items() for row in rows]
        for key, places in parts.items()
    }


def text_of(found: dict[str, list[Row]]) -> str:
    """JSON with a line for each place."""
    parts = []
    for key, places in grouped(found).items():
        lines = [
            f"{json.dumps(where)}: {json.dumps(rows, separators=(',', ':'))}"
            for where, rows in places.items()
        ]
        parts.append(f"{json.dumps(key)}: {{\n" + ",\n".join(lines) + "\n}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main(arguments: list[str]) -> int:
    raw = Path(arguments[0])
    text = page(raw)
    found = figures(text)
    if STUDY in found:
        found[STUDY] += beyond_tables(read(raw / STUDY))
    PAGE.write_text(condensed(text, PAGE.read_text()))
    FIGURES.write_text(text_of({**stored(), **found}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
