"""The time that the training's thread spends in save(): many saves, one after each step.

The program waits for each save until it is durable, so that no save waits for the one before. The
rest is the look at the state, and the orders for the copies. The first saves are not counted.
"""

import argparse
from pathlib import Path
from typing import Any

from lab.measure import devices
from lab.measure.devices import Budget, Lines, judged
from lab.networks import gpu_workloads as models
from lab.writers.loop_gpu import DeepFreeze

WORKLOAD = "resnet152"  # 2,333 tensors with Adam
FIRST = 4  # saves that have more to look at
P50_MS_TARGET, P99_MS_TARGET = 2.0, 5.0
SAVES_FOR_P99 = 500
ERRORS_KEPT = 4


def measured(
    name: str, options: argparse.Namespace, seed: int, place: Path, budget: Budget
) -> list[Any]:
    """The records of all saves but the first, while there is time."""
    workload = models.workload(name, options.device, quick=options.quick)
    training = workload.build(seed, in_backward=False)
    saver = DeepFreeze(training, place / f"stall-{name}", 1)
    try:
        for step in range(1, FIRST + options.times + 1):
            if budget.left_seconds() <= 0:
                break
            training.train_step(step, saver)
            saver.after_step(step)
            saver.drain()
        saver.settle()
    finally:
        saver.close()
        training.release()
    return saver.records[FIRST:]


def summary(values: list[float]) -> dict[str, float]:
    """Milliseconds: the median, the 99th of a hundred, the greatest."""
    ordered = sorted(1e3 * value for value in values)
    last = len(ordered) - 1
    return {"p50": ordered[last // 2], "p99": ordered[last * 99 // 100], "worst": ordered[last]}


def targets(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The bounds of the time in save(); only many saves have a p99."""
    call, enough = row.get("call", {}), row["saves"] >= SAVES_FOR_P99
    found = [
        judged("save() in ms, p50", call.get("p50"), "<=", P50_MS_TARGET),
        judged("save() in ms, p99", call.get("p99") if enough else None, "<=", P99_MS_TARGET),
    ]
    return [{"workload": row["workload"], **each} for each in found]


def run(options: argparse.Namespace, seed: int, place: Path, lines: Lines, budget: Budget) -> int:
    status = 0
    for name in options.workload or [WORKLOAD]:
        title = models.workload(name, options.device, quick=options.quick).title
        records = measured(name, options, seed, place, budget)
        errors = [one.error or "not committed" for one in records if not one.committed]
        good = [one for one in records if one.committed]
        row: dict[str, Any] = {"workload": name, "title": title, "saves": len(good)}
        if good:
            row["call"] = summary([one.call_seconds for one in good])
            row["captured"] = summary([one.captured_seconds for one in good])
            row["durable"] = summary([one.durable_seconds for one in good])
        lines.add("stall", {**row, "errors": errors[:ERRORS_KEPT]})
        for target in targets(row) if options.device == devices.CUDA else []:
            lines.add("target", target)
        status = 1 if errors or not good else status
    return status
