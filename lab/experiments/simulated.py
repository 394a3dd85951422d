"""Cases that nobody here can measure, by the model of lab.simulation: saving on 1 to 4,096 nodes.

First the model is held against what `scale` has measured on this machine: what one rank needs is
put in, what more ranks need comes out, and its error is a row.
"""

import json
from collections.abc import Iterator
from functools import partial

from lab.measure.case import Case, LeftOutError, Place
from lab.measure.row import Row
from lab.simulation import calibration
from lab.simulation.machine import nt3, read_machine
from lab.simulation.model import STRATEGIES, curve, why_not_installed

MEASURED = {"pytorch": (2, 4, 8)}  # the framework whose peers sync, too
INTERVAL = 2  # as in the measured jobs
STEP_SECONDS = 10.0  # assumed: a step of NT3 on one node of the modelled machine
MTBF_PER_NODE_SECONDS = 5 * 365 * 86_400.0  # assumed: five years
CURVE_SECONDS = 1.5
ABOUT: Row = {"simulated": True}


def cases(scaling: str) -> Iterator[Case]:
    """Last of the experiment: they need what it has measured, in jobs of this scaling."""
    for framework, ranks in MEASURED.items():
        about: Row = {**ABOUT, "framework": framework, "scaling": scaling}
        work = partial(compared, framework, ranks, scaling)
        yield Case("scale", f"model/{framework}", 0.5, about, work, derived=True)
    for strategy in STRATEGIES:
        about = {**ABOUT, "strategy": strategy, "workload": "nt3"}
        yield Case("scale", f"nodes/{strategy}", CURVE_SECONDS, about, partial(nodes, strategy))


def compared(framework: str, ranks: tuple[int, ...], scaling: str, place: Place) -> Iterator[Row]:
    """The error for each strategy and number of ranks that was measured."""
    refuse_without_model()
    measured = measured_by(framework, scaling, place)
    try:
        found = calibration.calibrate(row for row in measured if row["ranks"] == 1)
    except calibration.CalibrationError as error:
        raise LeftOutError(f"nothing to compare with: {error}") from None
    predicted = calibration.predict(found, ranks, interval=INTERVAL)
    for row in calibration.compare(predicted, measured).rows:
        figures = {name: row.pop(name) for name in ("measured", "predicted")}
        yield {**row, "detail": json.dumps(figures)}


def measured_by(framework: str, scaling: str, place: Place) -> list[Row]:
    return [
        row for row in place.measured
        if row["experiment"] == "scale" and row["status"] == "ok" and not row.get("simulated")
        and row.get("framework") == framework and row.get("scaling") == scaling
        and row.get("strategy") in STRATEGIES
    ]  # fmt: skip


def nodes(strategy: str, _: Place) -> Iterator[Row]:
    refuse_without_model()
    points = curve(
        read_machine(),
        nt3(STEP_SECONDS),
        mtbf_per_node_seconds=MTBF_PER_NODE_SECONDS,
        strategies=(strategy,),
    )
    for point in points:
        yield point.row()


def refuse_without_model() -> None:
    reason = why_not_installed()
    if reason:
        raise LeftOutError(reason)
