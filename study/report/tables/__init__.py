"""The tables of each experiment, made of its rows."""

from __future__ import annotations

from collections.abc import Callable

from study.report.summary import Study
from study.report.table import Table
from study.report.tables import faults, files, ranks, restarts, speed

TABLES: dict[str, Callable[[Study], list[Table]]] = {
    "cost": speed.cost,
    "formats": files.formats,
    "frequency": speed.frequency,
    "scale": ranks.scale,
    "determinism": restarts.determinism,
    "crash": faults.crash,
    "corruption": faults.corruption,
    "sdc": faults.sdc,
    "restore": speed.restore,
    "portability": files.portability,
    "tearing": faults.tearing,
}


def tables(study: Study, experiment: str) -> list[Table]:
    """None where nothing of it was measured."""
    return TABLES[experiment](study)
