"""What faults do: to checkpoints that are being written, to those that are there, to training."""

from lab.faults import state
from lab.report.summary import Group, Study
from lab.report.table import Cell, Mood, Table, notes_of, words
from lab.report.tables.common import WHOSE, framework, listing, matrix, split, whose, writer

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
    torn = notes_of([
        (f"{writer(group)}, {group['fault']}", group.text("reason")) for group in groups
        if group.ok and group["verdict"] in LOST and group["reason"]
    ])  # fmt: skip
    note = (
        "keeps, n of n: none of n tries lost it, and what is seldom lost needs more of them; can "
        "lose: in how many of the tries it did. A full disk leaves nothing to chance: one try."
    )
    return [matrix("", groups, lambda group: group.text("fault"), of_crash, note, *torn)]


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
    note = "Of so many damaged checkpoints, how many loads told; `silent`: other numbers came back."
    return [matrix("", groups, lambda group: group.text("fault"), of_damage, note)]


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
    told = matrix("Who tells of one flipped bit", files, lambda one: one.text("bits"), of_flip)
    return [made for made in (flips(training), told) if made.lines]


def flips(groups: list[Group]) -> Table:
    columns = ("Flipped in", "Bits", "How many", "Training", "Worst outcome", "Loss changes by",
               "NaN or infinite")  # fmt: skip
    note = (
        "absorbed: the last loss changes by less than 1 %; shifted: by more; lost: by more than "
        "itself, or it is no number."
    )
    title = "What flips do to the training that resumes from them"
    names = ("component", "bits", "flips", "workload")
    return listing(
        title, columns, groups, of_flips, note,
        names=lambda group: [group.text(name) for name in names],
        failed=lambda group: group.text("component"),
    )  # fmt: skip


def of_flips(group: Group) -> tuple[Cell, ...]:
    verdict = Cell(group.text("verdict"), CHANGE_MOODS.get(group.text("verdict"), Mood.PLAIN))
    change = group.figure("loss_change")
    amount = Cell(f"{change.median:.2g}", value=change.median) if change else Cell("")
    return verdict, amount, Cell(f"{group['nan']} of {group['trials']}")


def of_flip(group: Group) -> Cell:
    silent = group["verdict"] == SILENT
    column = SILENT if silent else FOUND
    return Cell(group.text("verdict") + ratio(group, column), Mood.BAD if silent else Mood.GOOD)


def tearing(study: Study) -> list[Table]:
    groups = study.groups("tearing")
    if not groups:
        return []
    columns = (*WHOSE, "State", "Snapshots are", "Most steps in one", "Trials")
    note = "consistent: of the step that was asked for; refused: the save failed, and said why."
    return [
        listing("", columns, groups, of_tearing, note,
                names=lambda group: (*whose(group), group.text("workload")))
    ]  # fmt: skip


def of_tearing(group: Group) -> tuple[Cell, ...]:
    mood = TEARING_MOODS.get(group.text("verdict"), Mood.WARN)
    most = group.figure("steps_mixed")
    mixed = f"{most.high:.0f}" if most else ""
    return Cell(group.text("verdict"), mood), *words(mixed, group.text("trials"))


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
    return listing(framework(groups[0]), columns, groups, of_restart, names=restarted)


def restarted(group: Group) -> tuple[str, ...]:
    happened = group.text("fault") or "undisturbed, twice"
    return writer(group), group.text("saved") or "nothing", happened


def of_restart(group: Group) -> tuple[Cell, ...]:
    verdict, mood = VERDICTS.get(group.text("verdict"), (group.text("verdict"), Mood.PLAIN))
    step = group["first_step"]
    first = "" if step is None else f"step {step}, {group.text('first_entry')}"
    return Cell(verdict, mood), *words(first, group.text("reason"))
