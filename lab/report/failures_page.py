"""The page of lab.experiments.node_failures: tables of the time that a training loses."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from lab.report.grid import grid
from lab.simulation.lost_time import (
    FAR_ONLY,
    NT3,
    PARITY,
    PARTNER,
    RANK0,
    SHARD_BYTES,
    SHARDED,
    STRATEGIES,
    Assumed,
    Point,
    Together,
)
from lab.simulation.model import NODES

TITLE = "# Time lost on 1 to 4,096 nodes that fail: SIMULATED"
NAMES = {
    RANK0: "rank 0 writes", FAR_ONLY: "far only", PARTNER: "partner", PARITY: "parity (6, 2)",
}  # fmt: skip
STATES = {
    NT3: "NT3, 1.24 GB that all nodes have",
    SHARDED: f"shards of {SHARD_BYTES / 1e9:.0f} GB on each node",
}
LOST, INTERVAL, READY, RESTORE = (
    "time lost, in %, SIMULATED", "seconds between saves", "seconds until a save outlives a node",
    "seconds of a restore",
)  # fmt: skip
RESTARTS = "restarts alone"
ALL = (LOST, INTERVAL, READY, RESTORE)
YEAR_SECONDS = 365 * 86_400.0
DAY_SECONDS = 86_400.0


@dataclass(frozen=True)
class Part:
    """One state, and one rate of failures."""

    assumed: Assumed
    points: Sequence[Point]
    tables: tuple[str, ...]  # that are shown


def heading(workload: str, assumed: Assumed) -> str:
    years = assumed.mtbf_per_node_seconds / YEAR_SECONDS
    days = assumed.mtbf_per_node_seconds / DAY_SECONDS
    often = f"{years:.0f} years" if years >= 1 else f"{days:.0f} days"
    told = f"{STATES[workload]}, a node fails every {often}"
    if not assumed.together_share:
        return told
    return f"{told}, {100 * assumed.together_share:.0f} % are {assumed.together} nodes at once"


def page(parts: Sequence[Part], at_once: Sequence[Together], command: str) -> str:
    assumed = parts[0].assumed
    lines = [TITLE, "", f"`{command}`; nothing of it is measured. Method and "
             "assumptions: [lab/simulation](../simulation/README.md#nodes-that-fail). In front: in "
             "the long run; in brackets: 5 % to 95 % of the runs of "
             f"{assumed.run_seconds / DAY_SECONDS:.0f} days.", ""]  # fmt: skip
    for part in parts:
        name = part.points[0].case.workload
        lines += [f"### {heading(name, part.assumed)}", "", *tables(part)]
    if at_once:
        lines += ["### Several nodes at once", "", *odds(at_once), ""]
    lines.append(comparison(parts, at_once))
    return "\n".join([*lines, ""])


def tables(part: Part) -> Iterator[str]:
    cells: dict[str, Callable[[Point], str]] = {
        LOST: lambda one: f"{percent(one.long.value)} [{percent(one.quantile(0.05))}, "
                          f"{percent(one.quantile(0.95))}]",
        INTERVAL: lambda one: seconds(one.saving.interval_seconds),
        READY: lambda one: seconds(one.copies.ready_seconds),
        RESTORE: lambda one: seconds(one.copies.restore_seconds),
    }  # fmt: skip
    for title in part.tables:
        heads = ["strategy", *map(column, NODES)]
        lines = [*rows(part.points, cells[title]), *([restarts(part)] if title == LOST else [])]
        yield from (f"**{title}**", "", *grid(heads, lines), "")


def column(nodes: int) -> str:
    return f"{nodes:,} node{'s' if nodes > 1 else ''}"


def rows(points: Sequence[Point], cell: Callable[[Point], str]) -> Iterator[list[str]]:
    for strategy in STRATEGIES:
        found = {one.case.nodes: cell(one) for one in points if one.case.strategy == strategy}
        if found:
            yield [NAMES[strategy], *(found.get(nodes, "-") for nodes in NODES)]


def restarts(part: Part) -> list[str]:
    """All that is lost if saves cost nothing, none is old, and none has to be read."""
    counts = {one.case.nodes: one.mtbf_seconds for one in part.points}
    shares = {
        nodes: -math.expm1(-part.assumed.restart_seconds / mtbf) for nodes, mtbf in counts.items()
    }
    return [RESTARTS, *(percent(shares[n]) if n in shares else "-" for n in NODES)]


def odds(found: Sequence[Together]) -> Iterator[str]:
    """Drawn, and by the product's formula."""
    strategies = list(dict.fromkeys(one.case.strategy for one in found))
    counts = sorted({one.case.nodes for one in found})
    lines = []
    for strategy in strategies:
        mine = {one.case.nodes: one for one in found if one.case.strategy == strategy}
        some = [mine.get(nodes) for nodes in counts]
        lines.append([f"{NAMES[strategy]}, drawn", *map(drawn, some)])
        lines.append([
            f"{NAMES[strategy]}, by src/protect/loss_odds",
            *("-" if one is None else percent(one.expected) for one in some),
        ])  # fmt: skip
    yield f"**{found[0].lost} at once: a protected checkpoint is lost, in %, SIMULATED**"
    yield from ("", *grid(["strategy", *map(column, counts)], lines))


def drawn(one: Together | None) -> str:
    return "-" if one is None else f"{percent(one.found.value)} ± {percent(one.found.error)}"


def comparison(parts: Sequence[Part], at_once: Sequence[Together]) -> str:
    """The draws against formulas, in standard errors; without those that are all alike."""
    renewals = [
        one.long.errors_from(one.expected)
        for part in parts for one in part.points
        if one.expected is not None and one.long.error
    ]  # fmt: skip
    chances = [one.found.errors_from(one.expected) for one in at_once if one.found.error]
    return (
        f"Drawn against calculated, in standard errors: {len(renewals)} long runs of "
        f"{NAMES[RANK0]} and {NAMES[FAR_ONLY]} against Daly's formula, at most "
        f"{max(renewals, default=0.0):.1f}, {sum(one > 1 for one in renewals)} of them above 1; "
        f"{len(chances)} of the odds, at most {max(chances, default=0.0):.1f}, "
        f"{sum(one > 1 for one in chances)} above 1."
    )


def percent(share: float) -> str:
    return f"{100 * share:.2g}" if share < 0.1 else f"{100 * share:.3g}"


def seconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"
