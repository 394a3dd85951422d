"""One run and all its users at once: trainers, the program, readers. Everything is judged here.

It is one thread: children are forked from it. Acts (acts.py) wait by `until`, so meanwhile all
other children are heard, and any fault ends the act as a ViolationError.
"""

from __future__ import annotations

import functools
import random
import select
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .children import DEADLINE_SECONDS, Child, Event, ViolationError, open_log
from .commands import Commands
from .on_disk import Held, held, used_bytes
from .oracle import Oracle, is_gone
from .reader import Reader, sample_of
from .state import Point, World
from .trainer import Plan, train

KEEP = 4
IO_MODES = ("", "", "direct", "buffered")  # "": as found out
WIDE_EVERY = 4  # seeds
EAGER_CHANCE = 0.2
TAIL_EVENTS = 60
PAUSE_SECONDS = 0.01
READERS = 2  # the program's calls are others
FRESH_READER_EVERY = 10  # loads


@dataclass
class Trainer:
    """One life, as far as it is known."""

    child: Child
    life: int
    expects: frozenset[str]  # codes of failures that are no surprise
    may_die: bool  # by itself: at a fail point
    durable: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    recovered: bool = False  # a save was durable after one that had failed
    said: set[str] = field(default_factory=set)  # kinds of events

    @property
    def dead(self) -> bool:
        return self.child.status is not None

    def heed(self, event: Event) -> None:
        kind = event["kind"]
        self.said.add(kind)
        if kind == "durable":
            self.durable += 1
            self.recovered = self.recovered or bool(self.failures)
        elif kind in ("failed", "refused"):
            self.failures[event["code"]] += 1
            if event["code"] not in self.expects:
                raise ViolationError(f"life {self.life}: {kind} for no cause of ours: {event}")


class Supervisor:
    """Knows the run, the truth about it, and its present users."""

    def __init__(self, run: Path, place: Path, seed: int, lie: str) -> None:
        self.run = run
        self.lie = lie
        self.draw = random.Random(seed)
        self.world = World(seed, "small" if seed % WIDE_EVERY else "wide")
        self.oracle = Oracle(self.world, KEEP)
        self.commands = Commands(run, place, self.oracle, KEEP, random.Random(seed + 1))
        self.trainers: list[Trainer] = []
        self.readers: list[Reader] = []
        self.counts: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.saves_durable = 0
        self.disk_curve: list[int] = []
        self.tail: deque[str] = deque(maxlen=TAIL_EVENTS)
        self._log = open_log(place)
        self._events = (place / "events.log").open("w")
        self._began = time.monotonic()

    # The present users.

    def start(self, *, expects: str = "", may_die: bool = False, **more: Any) -> Trainer:
        """The next life. `expects`: codes of failures, separated by spaces."""
        self.counts["lives"] += 1
        life = self.counts["lives"]
        usual = {
            "keep": KEEP,
            "io": self.draw.choice(IO_MODES),
            "lazy": self.draw.random() > EAGER_CHANCE,
            "lie": self.lie if self.lie in ("byte", "early") else "",
        }
        plan = Plan(self.run, self.world, life, **{**usual, **more})
        self.note(f"life {life} begins: {plan}")
        child = Child(f"life {life}", functools.partial(train, plan), self._log)
        trainer = Trainer(child, life, frozenset(expects.split()), may_die)
        self.trainers.append(trainer)
        return trainer

    def start_readers(self) -> None:
        for number in range(1, READERS + 1):  # each is known before the next one may fail
            leaks = self.lie == "leak" and number == READERS
            self.readers.append(Reader(self.run, number, self._log, leaks=leaks))

    def end(self, trainer: Trainer) -> None:
        """Ends it by SIGKILL, unless it has ended by itself."""
        self._hear(trainer)
        if not trainer.dead:
            self._kill(trainer)
        trainer.child.close()
        self.trainers.remove(trainer)
        self.failures += trainer.failures
        self.saves_durable += trainer.durable
        self.note(f"life {trainer.life} is over, {trainer.durable} durable")

    def _kill(self, trainer: Trainer) -> None:
        trainer.child.kill()
        self._hear(trainer)
        self.counts["killed"] += trainer.child.killed
        if not trainer.child.killed:  # it was faster
            self._check_end(trainer)

    def close(self) -> None:
        for trainer in self.trainers:
            trainer.child.close()
        self.commands.kill()
        for reader in self.readers:
            reader.close()
        self._events.close()

    # Waiting, in which all else goes on.

    def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Whether it came true in that time."""
        ends = time.monotonic() + seconds
        while not condition():
            if time.monotonic() >= ends:
                return False
            self._look()
        return True

    def must(self, condition: Callable[[], bool], what: str) -> None:
        """Nobody hangs."""
        if not self.until(condition, DEADLINE_SECONDS):
            raise ViolationError(f"not in {DEADLINE_SECONDS:.0f} s: {what}")

    def pass_time(self, seconds: float) -> None:
        self.until(lambda: False, seconds)

    def _look(self) -> None:
        select.select([each.child for each in self.trainers if not each.dead], [], [], 0.02)
        time.sleep(PAUSE_SECONDS)
        # Output that trainers wrote before a command or a reader ended is heard first.
        answers = [(reader, reader.answer()) for reader in self.readers]
        command_ended = self.commands.ended()
        for trainer in self.trainers:
            self._hear(trainer)
        if command_ended:
            self.commands.judge()
        self.commands.begin_any()
        for reader, answer in answers:
            if answer is not None:
                self._judge(reader, answer)
            if not reader.asked:
                self._ask(reader)

    def _hear(self, trainer: Trainer) -> None:
        was_dead = trainer.dead
        ended = trainer.child.ended()
        for event in trainer.child.events():
            self.note(f"life {trainer.life}: {_brief(event)}")
            self.oracle.heed(trainer.life, event)
            trainer.heed(event)
        trainer.child.check_alive()
        if ended and not was_dead:
            self._check_end(trainer)

    def _check_end(self, trainer: Trainer) -> None:
        """Checks a trainer that we did not kill."""
        died_as_told = trainer.may_die and trainer.child.killed
        if trainer.child.status != 0 and not died_as_told:
            raise ViolationError(f"life {trainer.life} ended with status {trainer.child.status}")
        self.counts["died at a fail point"] += died_as_told

    # The readers.

    def _ask(self, reader: Reader) -> None:
        if reader.sample_due:
            reader.sample_due = False
            reader.ask("sample")
        elif self.oracle.durable:
            reader.floor = self.oracle.floor()
            reader.ask("load" if reader.loads % FRESH_READER_EVERY else "open")
            reader.loads += 1

    def _judge(self, reader: Reader, answer: Event) -> None:
        if answer["kind"] == "sample":
            reader.curve.append(sample_of(answer))
        elif answer["kind"] == "refused":
            if not is_gone(answer["message"]):
                raise ViolationError(f"{reader.name}: {answer}")
            self.counts["loads of what was collected meanwhile"] += 1
        else:
            point = Point(*answer["point"])
            floor = self.oracle.floor()  # damage may have been done since it was asked
            self.oracle.check_floor(point, min(filter(None, (floor, reader.floor))), "load")
            self.oracle.check_bytes(point, answer["digests"], "load")
            self.counts["loads"] += 1

    # Rest: no trainer, no command. The readers read on.

    def rest(self) -> list[Held]:
        """The contents of the disk, checked against the oracle."""
        assert not self.trainers
        self.commands.paused = True
        self.must(lambda: self.commands.idle, "a command ends")
        self._forget_collected()
        found = held(self.run, self.oracle.spoiled)
        self.oracle.check_held(found)
        return found

    def go_on(self) -> None:
        self.commands.paused = False

    def command(self, *words: str) -> None:
        """One by itself, judged."""
        self.commands.begin(words)
        self.must(lambda: self.commands.idle, " ".join(words))

    def check_all_bytes(self, found: list[Held]) -> None:
        for each in found:
            self.oracle.check_bytes(each.point, each.digests(self.run), each.directory)

    def _forget_collected(self) -> None:
        for directory in list(self.oracle.spoiled):
            if not (self.run / directory).exists():
                self.oracle.lose(directory)

    def measure_disk(self) -> None:
        self.disk_curve.append(used_bytes(self.run))

    def note(self, text: str) -> None:
        line = f"{time.monotonic() - self._began:9.3f} {text}"
        self.tail.append(line)
        self._events.write(line + "\n")
        self._events.flush()


def _brief(event: Event) -> str:
    return " ".join(f"{name}={value}" for name, value in event.items() if name != "digests")
