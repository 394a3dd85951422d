"""What the rows say, in sentences; each names the measurements that it rests on."""

from collections.abc import Callable, Iterator

from lab.report.findings import speed, trust
from lab.report.findings.common import Finding
from lab.report.summary import Study


def findings(study: Study) -> list[Finding]:
    """In the order of the report; nothing is said of what was not measured."""
    makers: tuple[Callable[[Study], Iterator[Finding]], ...] = (
        speed.cost, speed.compression, speed.formats, speed.frequency, speed.levels, speed.scale,
        speed.simulated, trust.determinism, trust.crash, trust.corruption, trust.sdc, speed.restore,
        trust.portability, trust.tearing,
    )  # fmt: skip
    return [found for maker in makers for found in maker(study)]
