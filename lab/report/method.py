"""How it was measured, and what the figures are not: kept true to the experiments."""

from __future__ import annotations

from lab.report.sittings import differing, sittings
from lab.report.summary import Study

METHOD = (
    "Each writer saves, and restores, in a process of its own; the order is shuffled anew in each "
    "round. A figure is the median; brackets and bars go from the least to the greatest.",
    "The stall is from the call until the state may be changed again, as the writer says it. "
    "Durable is when every file and every name is synced: by the writer, or by the study where "
    "the writer leaves that to its user.",
    "Before a restore the files are dropped from memory. What comes back is compared byte by byte, "
    "after the state went on to change while it was saved.",
    "Overheads are of trainings with saves against those without in the same process, in shuffled "
    "order.",
    "Killed: SIGKILL where the save is about to make one of the calls with which it writes, makes, "
    "renames, removes or syncs a file, or to say that it is done: numbers spread over all of them, "
    "drawn from the seed. That call is not begun; those of other threads may be under way. "
    "A power cut shuts down a file system of the "
    "study's own, on a device in memory: what the device was not given is gone. It is mounted "
    "again and loaded from. A device that loses what it was given, its cache, is not tried.",
    "A restart is a new process. After every step digests of the whole state are compared with "
    "those of an undisturbed training. Negative controls leave a part out, and must end otherwise.",
    "Damage and flipped bits are at places drawn from the seed. Two runs with one seed must agree "
    "in every exact column; `deepfreeze study --compare A B` says whether they do.",
)
LIMITS = (
    "Ranks beyond the processors take turns: these figures show who waits for whom, not what a "
    "cluster would do.",
    "The networks are those of CANDLE and ResNet with made-up data, trained for a few steps.",
    "Simulated figures come from a model whose machine is largely assumed; its error against the "
    "ranks measured here is stated, its error at thousands of nodes is not known.",
    "What flips do to a training is shown for one small network.",
)


def limits(study: Study) -> tuple[str, ...]:
    return (where(study), *LIMITS)


def where(study: Study) -> str:
    """One machine and one time only where no run after the first says otherwise."""
    inside = "processors, device and what else was done there are in every time."
    count, unlike = len(sittings(study)), differing(study)
    if unlike:
        return (
            f"Not one machine at one time, by one code: its {count} runs differ in "
            f"{', '.join(unlike)}, and the {inside}"
        )
    return f"One machine, at {'one time' if count == 1 else f'{count} times'}: its {inside}"
