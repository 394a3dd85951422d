"""The pictures of each experiment; one without rows is not made."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lab.measure.row import Value
from lab.report.findings.common import measured, mixing
from lab.report.plots import Bar, Series, curves, dots
from lab.report.summary import Group, Study
from lab.report.table import seconds
from lab.report.tables.common import DEEPFREEZE, framework, is_ours, is_simulated, split, writer
from lab.report.tables.ranks import NAMES, NOTHING, in_order
from lab.report.tables.speed import RESTART, by

LONGER = "longer, %"


@dataclass(frozen=True)
class Chart:
    title: str
    caption: str
    picture: Markup
    simulated: bool = False


def charts(study: Study, experiment: str) -> list[Chart]:
    makers: dict[str, Callable[[Study], Iterator[Chart]]] = {
        "cost": cost, "frequency": frequency, "scale": scale, "restore": restore,
    }  # fmt: skip
    return list(makers[experiment](study)) if experiment in makers else []


def cost(study: Study) -> Iterator[Chart]:
    torn = {group["writer"] for group in mixing(study)}
    for (workload,), groups in split(measured(study, "cost"), "workload").items():
        caption = "Until the training may go on to change its state."
        yield from plot(groups, "stall_seconds", f"Stall of a save, {workload}", caption, torn)
        caption = "Until the checkpoint would survive a power cut."
        yield from plot(groups, "durable_seconds", f"Until it is durable, {workload}", caption)


def restore(study: Study) -> Iterator[Chart]:
    groups = [group for group in measured(study, "restore") if group["fault"] != RESTART]
    for (workload,), found in split(groups, "workload").items():
        caption = "Into tensors that are there, from files that are not in memory."
        yield from plot(found, "restore_seconds", f"Restore, {workload}", caption)


def plot(
    groups: Sequence[Group], column: str, title: str, caption: str, torn: Collection[Value] = ()
) -> Iterator[Chart]:
    """Those whose snapshots mix steps say so: it is why they are quick."""
    found = [dot(group, column, torn) for group in sorted(groups, key=by(column))]
    drawn = [one for one in found if one is not None and one.low > 0]
    if drawn:
        how = "Each line ten times the one before; a bar from the least to the greatest."
        yield Chart(title, f"{caption} {how}", Markup(dots(drawn, seconds)))


def dot(group: Group, column: str, torn: Collection[Value]) -> Bar | None:
    one = group.figure(column)
    if one is None:
        return None
    label = writer(group) + (" (mixes steps)" if group["writer"] in torn else "")
    return Bar(label, one.median, one.low, one.high, ours=is_ours(group))


def frequency(study: Study) -> Iterator[Chart]:
    for (_, workload), groups in split(
        measured(study, "frequency"), "framework", "workload"
    ).items():
        saving = [group for group in groups if group["interval"] != 0]
        series = [overhead(found) for found in split(saving, "writer").values()]
        yield Chart(
            f"{workload} in {framework(groups[0])}",
            "How much longer the training takes, against the steps between two saves. Points at "
            "or below 0 %, where noise is greater than the cost, are not drawn.",
            Markup(curves(series, "steps between saves", LONGER)),
        )


def overhead(groups: Sequence[Group]) -> Series:
    points = [
        (float(str(group["interval"])), 100 * (figure.median - 1))
        for group in groups if (figure := group.figure("run_time_ratio")) is not None
    ]  # fmt: skip
    return Series(writer(groups[0]), sorted(points), is_ours(groups[0]))


def scale(study: Study) -> Iterator[Chart]:
    groups = measured(study, "scale")
    real = [g for g in groups if not is_simulated(g) and g["ranks"] and g["strategy"] != NOTHING]
    for key, found in split(real, "framework", "workload", "scaling").items():
        if len({group["ranks"] for group in found}) > 1:
            title = f"{framework(found[0])}, {key[1]}, {key[2]} scaling"
            yield by_count(title, "The stall of the slowest rank.", found, "ranks")
    nodes = [group for group in groups if is_simulated(group) and group["nodes"]]
    if nodes:
        caption = "The longest stall of a rank in a save of NT3, on a Theta-like machine."
        yield by_count("1 to 4,096 nodes", caption, nodes, "nodes", simulated=True)


def by_count(
    title: str, caption: str, groups: Sequence[Group], column: str, *, simulated: bool = False
) -> Chart:
    series = []
    for name, found in in_order(groups):
        points = [
            (float(str(group[column])), figure.median)
            for group in found if (figure := group.figure("stall_seconds")) is not None
        ]  # fmt: skip
        series.append(Series(NAMES.get(name, name), sorted(points), name == DEEPFREEZE))
    up = "seconds, SIMULATED" if simulated else "seconds"
    return Chart(title, caption, Markup(curves(series, column, up)), simulated)
