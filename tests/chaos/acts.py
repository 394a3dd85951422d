"""The acts of chaos on a run, done one after the other. Each leaves no trainer behind."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable

from .children import ViolationError
from .fail_points import fail_points_of_one
from .on_disk import DAMAGES, Held, damage
from .small_disk import SmallDisk
from .supervisor import Supervisor, Trainer

KILL_SECONDS_MAX = 1.0
FAIL_POINT_SECONDS = 2.0
FAULT_SECONDS = 4.0
PASSES_MAX = 12
ERRORS = ("EIO", "ENOSPC", "EDQUOT", "EROFS", "ESTALE", "ENOMEM", "EMFILE")
DISK_CODES = "io no_space"
FENCED_CODES = "fenced io cancelled not_found"  # whatever becomes of a save that was overtaken
REPAIR_CHANCE = 0.5
KEEP_ALL = 1_000_000
WHOLE_MIN = 3  # undamaged checkpoints before one is damaged

COMMITTED = b'"outcome":"committed"'  # doctor --repair looks for it
POINTS = [
    name
    for name in fail_points_of_one()
    if not name.startswith(("debris.", "fork.", "repair.", "scrub.", "tag."))
]
# Points that can raise an error, not only kill: capturing can't fail.
ERROR_POINTS = [name for name in POINTS if not name.startswith("capture.")]


class Acts:
    """Each act draws its values from the supervisor's generator."""

    def __init__(self, on: Supervisor, disk: SmallDisk | None) -> None:
        self._on = on
        self._draw: random.Random = on.draw
        self._disk = disk
        self._without_manifest: set[str] = set()  # damaged, not repaired: directories
        self._acts: dict[Callable[[], None], float] = {
            self.killed: 5,
            self.killed_at_fail_point: 6,
            self.one_error: 4,
            self.dead_disk: 1,
            self.refused_by_the_system: 1.5,
            self.overtaken: 2,
            self.went_back: 2,
            self.ended_well: 1,
            self.damaged: 2,
            self.tidied: 2,
        }
        if disk is not None:
            self._acts[self.full_disk] = 1.5
        if on.lie == "damage":
            self._acts = {self.damaged: 1}  # the sooner it is found

    def next(self) -> None:
        (act,) = self._draw.choices(list(self._acts), list(self._acts.values()))
        self._on.note(f"act: {act.__name__}")
        self._on.counts[f"act {act.__name__}"] += 1
        act()

    def killed(self) -> None:
        """At a random moment, its start included."""
        trainer = self._on.start()
        self._on.pass_time(self._draw.uniform(0, KILL_SECONDS_MAX))
        self._on.end(trainer)

    def killed_at_fail_point(self) -> None:
        point, at_pass = self._draw.choice(POINTS), self._draw.randrange(1, PASSES_MAX)
        trainer = self._on.start(fail_points=f"{point}=kill@{at_pass}", may_die=True)
        self._on.until(lambda: trainer.dead, FAIL_POINT_SECONDS)
        self._on.end(trainer)

    def one_error(self) -> None:
        """One error of the disk; the next save starts afresh."""
        point, at_pass = self._draw.choice(ERROR_POINTS), self._draw.randrange(1, PASSES_MAX)
        error = self._draw.choice(ERRORS)
        armed = f"{point}=error:{error}@{at_pass}"
        trainer = self._on.start(fail_points=armed, expects=DISK_CODES)
        self._on.until(lambda: trainer.dead or trainer.recovered, FAULT_SECONDS)
        self._must_recover(trainer)
        self._on.end(trainer)

    def _must_recover(self, trainer: Trainer) -> None:
        if trainer.failures and not trainer.dead:
            self._on.must(
                lambda: trainer.dead or trainer.recovered, f"life {trainer.life} saves again"
            )

    def dead_disk(self) -> None:
        """Every write fails: so do the saves, and nothing else."""
        trainer = self._on.start(fail_points="part.write=error:EIO", expects=DISK_CODES)
        self._on.must(lambda: trainer.failures.total() >= 4, "four saves fail")
        if trainer.durable or trainer.dead:
            raise ViolationError(f"life {trainer.life} on a dead disk: {trainer}")
        self._on.end(trainer)

    def refused_by_the_system(self) -> None:
        """No file may grow, at some saves: EFBIG."""
        trainer = self._on.start(refused_every=3, expects=DISK_CODES)
        self._on.must(lambda: trainer.recovered, "a save after one that was refused")
        self._on.end(trainer)

    def overtaken(self) -> None:
        """Stopped; another takes over; it goes on, and must be fenced."""
        first = self._on.start()
        self._on.must(lambda: first.durable >= 2, "two saves")
        self._on.pass_time(self._draw.uniform(0, 0.05))
        first.child.stop()
        first.expects |= set(FENCED_CODES.split())
        second = self._on.start()
        self._on.must(lambda: second.durable >= 2, "two saves of the successor")
        first.child.go_on()
        self._on.must(lambda: first.dead, "the overtaken one gives up")
        if not first.failures["fenced"]:
            raise ViolationError(f"life {first.life} was overtaken and not fenced: {first}")
        self._on.counts["fenced"] += 1
        self._on.end(first)
        self._on.end(second)

    def went_back(self) -> None:
        """To an older checkpoint; perhaps for no more than a moment."""
        trainer = self._on.start(back=self._draw.randrange(1, 4))
        saves = self._draw.randrange(0, 8)
        self._on.must(lambda: trainer.durable >= saves, f"{saves} saves after going back")
        self._on.end(trainer)

    def ended_well(self) -> None:
        trainer = self._on.start(steps=6)
        self._on.must(lambda: trainer.dead, "a trainer ends by itself")
        if "ended" not in trainer.said or trainer.durable != 6:
            raise ViolationError(f"life {trainer.life} did not end well: {trainer}")
        self._on.end(trainer)

    def damaged(self) -> None:
        """A file of the newest; the next restore falls back and says so."""
        whole = self._on.rest()
        if len(whole) >= WHOLE_MIN and not self._on.oracle.spoiled:
            self._damage(whole[0])
        self._on.go_on()
        self._restore_and_save()

    def _damage(self, newest: Held) -> None:
        # Of a file that checkpoints share, another copy would be restored.
        own_data = "*-0-of-?.safetensors"
        pattern = self._draw.choice([own_data, "manifest.json"])
        if self._on.lie == "damage":
            pattern = own_data  # the oracle itself reads manifests
        else:
            self._on.oracle.spoiled[newest.directory] = newest.point
        (file,) = (self._on.run / newest.directory).glob(pattern)
        how = self._draw.choice(list(DAMAGES))
        whole = file.stat().st_size
        damage(file, how, self._draw)
        self._on.note(f"{how}: {file}")
        self._on.counts[f"{how} of {pattern}"] += 1
        self._on.command("verify")
        if pattern == "manifest.json":
            tells = file.stat().st_size == whole or COMMITTED in file.read_bytes()
            self._repair_or_leave(newest.directory, may=tells)

    def _repair_or_leave(self, directory: str, *, may: bool) -> None:
        """A damaged manifest can be written anew if its rest shows that it was one of a committed
        attempt, until the line continues without it."""
        if may and self._draw.random() < REPAIR_CHANCE:
            self._on.command("doctor", "--repair")
            del self._on.oracle.spoiled[directory]
            self._on.command("verify")
            self._on.counts["repaired"] += 1
        else:
            self._without_manifest.add(directory)

    def _restore_and_save(self) -> None:
        trainer = self._on.start()
        self._on.must(lambda: trainer.durable >= 1, "a save after the restore")
        self._on.pass_time(self._draw.uniform(0, KILL_SECONDS_MAX / 2))
        self._on.end(trainer)

    def tidied(self) -> None:
        """With nobody writing: exactly the files that count are left, with every byte right."""
        self._on.rest()
        if self._on.oracle.durable:
            self._remove_undeletable()
            self._on.command("gc", "--keep-last", "4")
            self._on.command("doctor", "--delete-debris")
            self._on.command("verify")
            self._on.check_all_bytes(self._on.rest())
            self._on.measure_disk()
        self._on.go_on()

    def _remove_undeletable(self) -> None:
        """No collector takes a checkpoint whose manifest is damaged: somebody has to."""
        while self._without_manifest:
            directory = self._without_manifest.pop()
            shutil.rmtree(self._on.run / directory)
            self._on.oracle.lose(directory)

    def full_disk(self) -> None:
        """Really full: by a file that takes whatever is free. The trainer frees nothing itself."""
        assert self._disk is not None
        disk = self._disk
        trainer = self._on.start(keep=KEEP_ALL, expects=DISK_CODES)
        self._on.must(lambda: trainer.durable >= 1, "a save before the disk is full")
        try:
            self._on.must(lambda: self._filled(disk, trainer), "two saves fail on a full disk")
        finally:
            disk.free()
        trainer.recovered = False
        self._must_recover(trainer)
        self._on.end(trainer)
        self.tidied()  # the next life could not save beside all that this one kept

    def _filled(self, disk: SmallDisk, trainer: Trainer) -> bool:
        """What `gc` frees is taken as well."""
        self._on.commands.disk_is_full = True
        disk.fill()
        return trainer.failures.total() >= 2
