"""What a load after a fault amounts to. Only what was loaded decides, never who saved it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from lab.faults.judge import Holds
from lab.faults.state import NEWER

End = Literal["loaded", "failed", "died", "hung"]


@dataclass(frozen=True)
class Loaded:
    """How one process that loaded ended."""

    end: End
    holds: Holds | None = None  # None where nothing was loaded
    error: str = ""
    passed_over: tuple[int, ...] = ()  # steps that the saver says it did not take, being damaged
    tally: dict[str, int] = field(default_factory=dict)  # of what is wrong


DETECTED, FELL_BACK, SILENT, HARMLESS = "detected", "fell back", "silent", "harmless"
KEPT, LOST, WRONG = "kept", "lost", "wrong"
OF_NEWER, OF_OLDER, BY_HAND = "newer", "older", "older by hand"
DIED, HUNG = "died", "hung"
NOTHING = "nothing"  # is left that can be loaded

FOUND = (DETECTED, FELL_BACK)
RIGHT = (OF_NEWER, OF_OLDER, BY_HAND)


def of_damage(loaded: Loaded) -> str:
    """An older state counts as found only where the newer one is named as damaged."""
    if loaded.end == "failed":
        return DETECTED
    if loaded.end != "loaded":
        return DIED if loaded.end == "died" else HUNG
    if loaded.holds == "newer":
        return HARMLESS
    named = loaded.holds == "older" and NEWER in loaded.passed_over
    return FELL_BACK if named else SILENT


def of_acknowledged(first: Loaded, older: Loaded | None) -> str:
    """Of a save that said it was done: only its own state will do."""
    if "wrong" in (first.holds, older and older.holds):
        return WRONG
    return KEPT if first.holds == "newer" else LOST


def of_interrupted(first: Loaded, older: Loaded | None) -> str:
    """Of a save that was not done: the state before it will do as well, if need be by its name."""
    if "wrong" in (first.holds, older and older.holds):
        return WRONG
    if first.holds is not None:
        return OF_NEWER if first.holds == "newer" else OF_OLDER
    return BY_HAND if older is not None and older.holds == "older" else LOST


def left(first: Loaded, older: Loaded | None) -> str:
    """What can be loaded at all."""
    if first.holds is not None:
        return first.holds
    return (older.holds if older is not None else None) or NOTHING
