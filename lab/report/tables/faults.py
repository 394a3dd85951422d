"""What faults do: to checkpoints that are being written, to those that are there, to training."""

from lab.faults import state
from lab.report.summary import Group, Study
from lab.report.table import Cell, Line, Mood, Table, notes_of, words
from lab.report.tables.common import absent, failures, framework, is_ours, matrix, split, writer

KEPT = ("keeps the newest", "keeps one")
LOST = ("can lose the newest", "can lose both")
REFUSED_WELL = "an error; the older one left; the next save works"
BY_CHANCE = (*KEPT, *LOST)
SPOILT = ("can lose", "never was", "no error", "both lost", "dies", "hangs")
FOUND, SILENT, HARMLESS = "found", "silent", "harmless"
CHANGE_MOODS = {"absorbed": Mood.GOOD, "shifted": Mood.WARN, "lost": Mood.BAD}
TEARING_MOODS = {"consistent": Mood.GOOD, "refused": Mood.GOOD, "torn": Mood.BAD}


def crash(study: Study) -> list[Table]:
    groups = study.groups("crash")
    if not groups:
        return []
    made = matrix("", groups, lambda group: group.text("fault"), of_crash)
    torn = notes_of([
        (f"{writer(group)}, {group['fault']}", group.text("reason")) for group in groups
        if group.ok and group["verdict"] in LOST and group["reason"]
    ])  # fmt: skip
    note = (
        "keeps, n of n: none of n tries lost it, and what is seldom lost needs more of them; can "
        "lose: in how many of the tries it did. A full disk leaves nothing to chance: one try."
    )
    return [Table(made.title, made.columns, made.lines, (note, *torn, *made.notes))]


def of_crash(group: Group) -> Cell:
    verdict = group.text("verdict")
    if verdict in (*KEPT, REFUSED_WELL):
        return Cell(verdict + tries(group), Mood.GOOD)
    bad = any(word in verdict for word in SPOILT)
    return Cell(verdict + tries(group), Mood.BAD if bad else Mood.WARN)


def tries(group: Group) -> str:
    """How many stand behind a verdict that is left to chance."""
    ends, trials = group.detail().get("outcomes"), group["trials"]
    if group["verdict"] not in BY_CHANCE or trials is None:
        return ""
    if not isinstance(ends, dict):
        return f", {trials} tries"
    lost = sum(int(ends.get(name, 0)) for name in (state.LOST, state.WRONG))
    if group["verdict"] in LOST:
        return f", {lost} of {trials} lost"
    return f", {int(str(trials)) - lost} of {trials}"


def corruption(study: Study) -> list[Table]:
    groups = study.groups("corruption")
    if not groups:
        return []
    made = matrix("", groups, lambda group: group.text("fault"), of_damage)
    note = "Of so many damaged checkpoints, how many loads told; `silent`: other numbers came back."
    return [Table(made.title, made.columns, made.lines, (note, *made.notes))]


def of_damage(group: Group) -> Cell:
    verdict = group.text("verdict")
    mood = {FOUND: Mood.GOOD, HARMLESS: Mood.GOOD}.get(verdict, Mood.BAD)
    return Cell(verdict + ratio(group, SILENT if verdict == SILENT else FOUND), mood)


def ratio(group: Group, column: str) -> str:
    """How many of the trials: not known of a writer whose files differ each time."""
    count = group[column]
    return "" if count is None else f", {count} of {group['trials']}"


def sdc(study: Study) -> list[Table]:
    groups = study.groups("sdc")
    training = [group for group in groups if not group["writer"]]
    files = [group for group in groups if group["writer"]]
    return [made for made in (flips(training), told(files)) if made.lines]


def flips(groups: list[Group]) -> Table:
    columns = ("Flipped in", "Bits", "How many", "Training", "Worst outcome", "Loss changes by",
               "NaN or infinite")  # fmt: skip
    note = (
        "absorbed: the last loss changes by less than 1 %; shifted: by more; lost: by more than "
        "itself, or it is no number."
    )
    title = "What flips do to the training that resumes from them"
    return Table(title, columns, tuple(map(flips_line, groups)), (note, *failures(groups, part)))


def part(group: Group) -> str:
    return group.text("component")


def flips_line(group: Group) -> Line:
    names = words(*map(group.text, ("component", "bits", "flips", "workload")))
    if not group.ok:
        return Line((*names, absent(group)))
    verdict = Cell(group.text("verdict"), CHANGE_MOODS.get(group.text("verdict"), Mood.PLAIN))
    change = group.figure("loss_change")
    amount = Cell(f"{change.median:.2g}", value=change.median) if change else Cell("")
    nan = Cell(f"{group['nan']} of {group['trials']}")
    return Line((*names, verdict, amount, nan))


def told(groups: list[Group]) -> Table:
    made = matrix("Who tells of one flipped bit", groups, lambda one: one.text("bits"), of_flip)
    return made


def of_flip(group: Group) -> Cell:
    silent = group["verdict"] == SILENT
    column = SILENT if silent else FOUND
    return Cell(group.text("verdict") + ratio(group, column), Mood.BAD if silent else Mood.GOOD)


def tearing(study: Study) -> list[Table]:
    groups = study.groups("tearing")
    if not groups:
        return []
    columns = ("Writer", "Framework", "State", "Snapshots are", "Most steps in one", "Trials")
    notes = (
        "consistent: of the step that was asked for; refused: the save failed, and said why.",
        *failures(groups),
    )
    return [Table("", columns, tuple(map(tearing_line, groups)), notes)]


def tearing_line(group: Group) -> Line:
    names = words(writer(group), framework(group), group.text("workload"))
    if not group.ok:
        return Line((*names, absent(group)), is_ours(group))
    mood = TEARING_MOODS.get(group.text("verdict"), Mood.WARN)
    most = group.figure("steps_mixed")
    cells = (Cell(group.text("verdict"), mood), *words(f"{most.high:.0f}" if most else "",
                                                      group.text("trials")))  # fmt: skip
    return Line((*names, *cells), is_ours(group))


# Trainings that were killed and resumed.


SAME = "BIT_IDENTICAL"
VERDICTS = {
    SAME: ("bit for bit the same", Mood.GOOD),
    "ULP_CLOSE": ("apart by rounding", Mood.WARN),
    "DIVERGED": ("another training", Mood.BAD),
    "FAILED": ("could not resume", Mood.BAD),
    "NONDETERMINISTIC_BASELINE": ("two undisturbed runs differ", Mood.WARN),
}


def determinism(study: Study) -> list[Table]:
    found = split(study.groups("determinism"), "framework")
    return [of_framework(groups) for groups in found.values()]


def of_framework(groups: list[Group]) -> Table:
    columns = ("Writer", "Of the state it saved", "What happened", "The resumed training is",
               "First difference", "Remark")  # fmt: skip
    return Table(framework(groups[0]), columns, tuple(map(line, groups)), failures(groups))


def line(group: Group) -> Line:
    happened = group.text("fault") or "undisturbed, twice"
    saved = group.text("saved") or "nothing"
    names = words(writer(group), saved, happened)
    if not group.ok:
        return Line((*names, absent(group)), is_ours(group))
    verdict, mood = VERDICTS.get(group.text("verdict"), (group.text("verdict"), Mood.PLAIN))
    return Line((*names, Cell(verdict, mood), *words(first(group), group.text("reason"))),
                is_ours(group))  # fmt: skip


def first(group: Group) -> str:
    if group["first_step"] is None:
        return ""
    return f"step {group['first_step']}, {group.text('first_entry')}"
