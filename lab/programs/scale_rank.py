"""A rank of a job that trains with every strategy in turn; what all frameworks' ranks share."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.measure.loop import Experiment, Workload
from lab.measure.ranks_segments import Job, train_all
from lab.writers.loop import Saver

STRONG = "strong"
Savers = Mapping[str, type[Saver]]  # by strategy


def share_of(batches: list[Any], scaling: str, rank: int, ranks: int) -> list[Any]:
    """A rank's batches: of each its own rows, or each whole and begun with another one."""
    if scaling == STRONG:
        return [tuple(part[rank::ranks] for part in batch) for batch in batches]
    first = rank % len(batches)
    return [*batches[first:], *batches[:first]]


def be_rank(arguments: dict[str, Any], job: Job, workload: Workload, savers: Savers) -> None:
    wanted = [savers[name] for name in arguments["strategies"]]
    experiment = Experiment(
        name=arguments["workload"],
        workload=workload,
        every=arguments["every"],
        savers=(Saver, Saver, *wanted),  # all others are divided by what saves nothing
        rounds=1,
        steps=arguments["steps"],
        seed=arguments["seed"],
        settle_seconds=arguments["settle_seconds"],
    )
    shared = Path(arguments["directory"])
    by_rank = train_all(experiment, (arguments["order_seed"],), shared, job)
    if job.rank == 0:
        named = {
            saver.name: {"strategy": name, "title": saver.title, "synced": saver.synced}
            for name, saver in savers.items()
        }
        report = {"by_rank": by_rank, "savers": named}
        Path(arguments["out"]).write_text(json.dumps(report))
