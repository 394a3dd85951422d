"""The verb: what a user asks, what is printed, the exit status.

0 good, 2 usage, 3 what was measured could not be kept, 130 interrupted: what was measured stays.
With --compare 1 where something differs that two runs should have alike.
"""

import argparse
import json
import random
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from lab import experiments, report
from lab.measure import machine
from lab.measure.case import Case, Plan
from lab.measure.files import scratch
from lab.measure.journal import (
    ABOUT,
    Journal,
    JournalError,
    note_resumption,
    open_journal,
    read_about,
    read_journal,
)
from lab.measure.program import Environments
from lab.measure.row import STATUSES
from lab.measure.run import run_all

GOOD, DIFFERS, USAGE, FAILURE, INTERRUPTED = 0, 1, 2, 3, 130
ALL = "all"
SEED_MAX = 1 << 32
DEFAULT_OUT = Path("study-results")
JSON_FORMAT = 1  # of every --json document, as in src/cli/console.h


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="deepfreeze study",
        description="What checkpoints cost, hold and survive on this machine, by many writers.",
        epilog="An interrupted study goes on where the same command is given again.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "experiments", nargs="*", metavar="EXPERIMENT", help=f"default: {ALL}; see --list"
    )
    parser.add_argument(
        "--quick", action="store_true", help="minutes: smaller states, fewer rounds"
    )
    parser.add_argument(
        "--simulate", action="store_true", help="only the model of 1 to 4,096 nodes, of `scale`"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", default=DEFAULT_OUT, help=f"default: {DEFAULT_OUT}"
    )
    parser.add_argument(
        "--directory", type=Path, metavar="DIR",
        help="where checkpoints are written: its device is what is measured; default: --out",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, help="default: that of --out, or random")
    parser.add_argument("--retry", action="store_true", help="run again what was not ok")
    parser.add_argument("--list", action="store_true", help="the experiments and their cases")
    parser.add_argument("--report", action="store_true", help="only write the report anew")
    parser.add_argument(
        "--compare", nargs=2, type=Path, metavar="DIR", help="two studies: machines, or dates"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(arguments)
    options.experiments = wanted(options.experiments, parser)
    return options


def wanted(names: list[str], parser: argparse.ArgumentParser) -> list[str]:
    """In the order of the report, whatever the order in which they were named."""
    unknown = [name for name in names if name not in (*experiments.NAMES, ALL)]
    if unknown:
        known = ", ".join((*experiments.NAMES, ALL))
        parser.error(f"no experiment {', '.join(unknown)}: there are {known}")
    if not names or ALL in names:
        return list(experiments.NAMES)
    return [name for name in experiments.NAMES if name in names]


def plan_of(options: argparse.Namespace) -> Plan:
    """A study that is there keeps its seed."""
    seed = options.seed
    if seed is None:
        try:
            seed = int(read_about(options.out)["seed"])
        except JournalError:
            seed = random.SystemRandom().randrange(SEED_MAX)
    return Plan(options.quick, seed)


def cases_of(options: argparse.Namespace, plan: Plan) -> list[Case]:
    found = list(experiments.cases_of(options.experiments, plan))
    return [case for case in found if case.about.get("simulated")] if options.simulate else found


def listed(options: argparse.Namespace, cases: list[Case]) -> None:
    counts = Counter(case.experiment for case in cases)
    seconds: Counter[str] = Counter()
    for case in cases:
        seconds[case.experiment] += round(case.seconds)
    known = [experiments.load(name) for name in options.experiments]
    if options.json:
        document: dict[str, Any] = {"format": JSON_FORMAT, "experiments": [
            {"name": one.name, "title": one.title, "question": one.question,
             "cases": counts[one.name], "seconds": seconds[one.name]} for one in known
        ]}  # fmt: skip
        print(json.dumps(document))
        return
    for one in known:
        cost = f"{counts[one.name]:>5} cases, {seconds[one.name] / 60:5.1f} min"
        print(f"{one.name:<14}{cost}  {one.question}")
    print(f"{'':<14}{len(cases):>5} cases, {sum(seconds.values()) / 60:5.1f} min")


def measure(options: argparse.Namespace, plan: Plan, cases: list[Case]) -> Journal:
    """Makes the environments, runs what is missing, keeps every row."""
    directory = options.directory or options.out
    for path in (options.out, directory):
        path.mkdir(parents=True, exist_ok=True)
    described = machine.describe_study(directory)
    journal = open_journal(options.out, plan, described)
    try:
        run_missing(options, plan, cases, journal, described)
    finally:
        journal.close()
    return journal


def run_missing(
    options: argparse.Namespace,
    plan: Plan,
    cases: list[Case],
    journal: Journal,
    described: dict[str, Any],
) -> None:
    if options.retry:
        journal.forget_failures()
    journal.forget_outdated(cases)
    say(f"seed {plan.seed}; rows in {journal.path}")
    finished = journal.finished()
    if journal.resumes and any(case.key not in finished for case in cases):
        changed = note_resumption(options.out, described)
        if changed:
            say(f"goes on with another {', '.join(changed)} than it began with: {ABOUT} tells")
    environments = Environments()
    environments.make(case.environment for case in cases if case.key not in finished)
    with scratch(options.directory or options.out, "study-") as place:
        run_all(cases, journal, environments, place.resolve(), plan)


def conclude(options: argparse.Namespace, journal: Journal) -> None:
    written = report.write(options.out)
    counts = Counter(str(row["status"]) for row in journal.rows)
    if options.json:
        print(json.dumps({
            "format": JSON_FORMAT, "rows": len(journal.rows), "status": dict(counts),
            "files": [str(path) for path in (journal.path, *written)],
        }))  # fmt: skip
        return
    shown = ", ".join(f"{counts[name]} {name}" for name in STATUSES if counts[name])
    print(f"{len(journal.rows)} rows: {shown or 'none'}")
    for path in written:
        print(path)


def compare(options: argparse.Namespace) -> int:
    found = report.compare(*options.compare)
    print(json.dumps(found.as_json()) if options.json else found.text())
    return int(found.exit_status)


def say(text: str) -> None:
    print(f"study: {text}", file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # tidied up after as well
    try:
        return carry_out(options)
    except JournalError as error:
        say(str(error))
        return USAGE
    except OSError as error:
        say(f"stopped: {error}; what is missing is run where the same command is given again")
        return FAILURE
    except KeyboardInterrupt:
        say("interrupted; the same command goes on")
        return INTERRUPTED


def carry_out(options: argparse.Namespace) -> int:
    if options.compare:
        return compare(options)
    plan = plan_of(options)
    if options.report:
        conclude(options, read_journal(options.out))
        return GOOD
    cases = cases_of(options, plan)
    if options.list:
        listed(options, cases)
        return GOOD
    conclude(options, measure(options, plan, cases))
    return GOOD
