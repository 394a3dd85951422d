"""How runs that were killed and resumed ended, beside one that was not disturbed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def faults_of_endings(
    runs: int,
    identical: int,
    reference: str,
    controls: Mapping[str, str],
    forgetful: Iterable[str],
) -> list[str]:
    """`controls`: digests by the part that a resumed run forgot; `forgetful`: those to differ."""
    faults = []
    if identical != runs:
        faults.append(f"{runs - identical} of {runs} runs ended differently")
    if controls.get("nothing", reference) != reference:
        faults.append("the control that forgets nothing ended differently")
    for name in forgetful:
        if controls.get(name, "") == reference:
            faults.append(f"the control without {name} ended the same: the test has no power")
    return faults
