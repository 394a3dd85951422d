"""What compressing costs and saves, with writers that are measured with it and without."""

from collections.abc import Iterator

from lab.report.findings.common import Finding, finding, measured, median
from lab.report.summary import Group, Study
from lab.report.table import seconds, size, three
from lab.report.tables.common import split, writer

PAIRS = (("chainer", "chainer-stored"), ("chainer-hdf5", "chainer-hdf5-stored"))


def compression(study: Study) -> Iterator[Finding]:
    for (workload,), groups in split(measured(study, "cost"), "workload").items():
        found = {group.text("writer"): group for group in groups if file_bytes(group)}
        pairs = [(found[one], found[other]) for one, other in PAIRS if {one, other} <= set(found)]
        if pairs:
            told = "; ".join(beside(*pair) for pair in pairs)
            yield finding(
                "cost",
                f"Compressed beside uncompressed ({workload}, random numbers in place of trained "
                f"ones): {told}.",
                [group for pair in pairs for group in pair],
            )


def file_bytes(group: Group) -> float:
    return float(group.detail().get("file_bytes") or 0)


def beside(packed: Group, plain: Group) -> str:
    spent, plainly = (median(group, "durable_seconds") for group in (packed, plain))
    return (
        f"{writer(packed)} takes {three(spent / plainly)} times as long until it is durable "
        f"({seconds(spent)}, not {seconds(plainly)}) as {writer(plain)}, for "
        f"{100 * file_bytes(packed) / file_bytes(plain):.3g} % of its size "
        f"({size(file_bytes(packed))}, not {size(file_bytes(plain))})"
    )
