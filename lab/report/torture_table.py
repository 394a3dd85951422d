"""The Markdown, from the JSON alone."""

from collections import Counter
from typing import Any

from lab.experiments.torture.campaign import AFTER, CAPTURED, DURING, FILE_SYSTEMS, FLIP, KILL
from lab.faults.disk import Cut
from lab.faults.state import BY_HAND, DIED, FOUND, HARMLESS, HUNG, KEPT, LOST, RIGHT, SILENT, WRONG
from lab.report.grid import grid, machine_lines

Figures = dict[str, Any]
COLUMNS = {
    FLIP: "one bit flipped",
    **{f"{AFTER} {one.name}": f"power cut after the save, {one.name}" for one in FILE_SYSTEMS},
    **{f"{DURING} {one.name}": f"power cut in the save, {one.name}" for one in FILE_SYSTEMS},
    KILL: "killed in the save",
    CAPTURED: "killed once captured",
}
GOOD = {FLIP: (FOUND, "found"), AFTER: ((KEPT,), "kept"), DURING: (RIGHT, "right")}
GOOD[KILL] = GOOD[DURING]
GOOD[CAPTURED] = GOOD[AFTER]
OTHERS = (SILENT, LOST, WRONG, DIED, HUNG, HARMLESS)
NOTHING_LEARNT = "can't run"
LEFT = ("newer", "older", "nothing", "wrong")
READING = (
    (
        (FLIP,),
        "*one bit flipped*: at a random place of all that the newer save has written; then a "
        "load. *found*: an error, or from DeepFreeze the older state, the newer one being named "
        "as damaged. *silent*: loaded without an error, with other bytes than were saved. "
        "*harmless*: loaded, and equal. Each load is in a process of its own",
    ),
    (
        (AFTER,),
        "*power cut after the save*: the older checkpoint and all else is synced, the newer one "
        "is saved until its saver says that it is done; then the file system is shut down at "
        "once, half of the times with its journal flushed (FS_IOC_SHUTDOWN, flag 1), half "
        "without (2), and mounted again. *kept*: the newer one loads. *lost*: it does not. "
        "*wrong*: something loads without an error that was never saved. It is the unlucky "
        "moment: some seconds later the kernel has written by itself what nobody synced",
    ),
    (
        (DURING, KILL),
        "*power cut in the save*, *killed in the save*: at a random moment before the saver says "
        "that it is done. *right*: the newer state loads or the older one, *by hand* where the "
        "load of the newest fails and the older one must be asked for by its name. *lost*: "
        "neither",
    ),
    (
        (CAPTURED,),
        "*killed once captured*: SIGKILL as soon as the state may be changed again, while the "
        "rest of the save goes on behind training. A saver that lets nobody go on before it is "
        "done has nothing to lose here. *kept*: the newer one loads. *lost*: it does not",
    ),
)


def cell(result: Figures) -> str:
    if result["left_out"]:
        return "left out"
    counts = Counter(trial["outcome"] for trial in result["trials"])
    if not counts:
        return NOTHING_LEARNT
    good, word = GOOD[result["fault"].split()[0]]
    text = f"{sum(counts[one] for one in good)} of {counts.total()} {word}"
    named = sorted((name for name in counts if name not in good), key=OTHERS.index)
    others = [f"{counts[name]} {name}" for name in named]
    if counts[BY_HAND]:
        others.append(f"{counts[BY_HAND]} of them by hand")
    return ", ".join([text, *others, *(["FAILED after that"] if result["error"] else [])])


def cells(row: Figures, columns: list[str]) -> list[str]:
    found = {result["fault"]: cell(result) for result in row["results"]}
    if row["unavailable"]:
        return [row["title"], NOTHING_LEARNT, *["-"] * (len(columns) - 1)]
    return [row["title"], *(found.get(column, "-") for column in columns)]


def trials_of(row: Figures, fault: str) -> list[Figures]:
    """On all file systems."""
    results = (one for one in row["results"] if one["fault"].split()[0] == fault)
    return [trial for result in results for trial in result["trials"]]


def left_cell(row: Figures, fault: str, cut: Cut) -> str:
    """What could still be loaded after the cuts of one kind."""
    trials = (one for one in trials_of(row, fault) if one["cut"] == cut.name)
    counts = Counter(one["left"] for one in trials)
    return ", ".join(f"{counts[name]} {name}" for name in LEFT if counts[name]) or "-"


def reasons(row: Figures) -> list[str]:
    if row["unavailable"]:
        return [f"{row['title']}: {row['unavailable']}"]
    errors = dict.fromkeys(result["error"] for result in row["results"] if result["error"])
    return [f"{row['title']}: {error}" for error in errors]


def description(row: Figures) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in row["versions"].items())
    return f"**{row['title']}** ({versions or 'no version'}): {row['usage']}. {row['note']}"


def left_out_lines(figures: Figures) -> list[str]:
    return [f"LEFT OUT: power cuts on {name}: {why}" for name, why in figures["left_out"].items()]


def left_table(rows: list[Figures]) -> list[str]:
    kinds = [(fault, cut) for fault in (AFTER, DURING) for cut in Cut]
    words = {AFTER: "after", DURING: "in", Cut.LOG_FLUSHED: "flushed", Cut.LOG_LOST: "lost"}
    headings = [f"{words[fault]} the save, journal {words[cut]}" for fault, cut in kinds]
    lines = [[row["title"], *(left_cell(row, *one) for one in kinds)] for row in rows]
    return grid(["what loads after a power cut", *headings], lines)


def markdown(figures: Figures) -> str:
    rows = figures["rows"]
    ran = {result["fault"] for row in rows for result in row["results"]}
    columns = [one for one in COLUMNS if one in ran]
    headings = ["saver", *(COLUMNS[one] for one in columns)]
    lines = ["# What faults do to checkpoints", "", f"`{figures['command']}`", ""]
    lines += [*machine_lines(figures["machine"]), "", *left_out_lines(figures)]
    lines += [f"## {figures['state']}", "", *grid(headings, [cells(one, columns) for one in rows])]
    names = {one.split()[0] for one in ran}
    lines += ["", *(f"- {text}." for faults, text in READING if names & set(faults))]
    lines += [f"- {reason}" for row in rows for reason in reasons(row)]
    cut = [row for row in rows if any(trials_of(row, fault) for fault in (AFTER, DURING))]
    lines += ["", *left_table(cut)] if cut else []
    lines += ["", "## How each is used", "", *(f"- {description(row)}." for row in rows)]
    return "\n".join(lines) + "\n"
