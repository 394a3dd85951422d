"""df.parity(), df.partner(): checkpoints that outlive the loss of nodes."""

from __future__ import annotations

from dataclasses import dataclass

from deepfreeze.interval.sizes import bytes_per_second_of

# Data, parity, bytes per second, domain.
ParityForm = tuple[int, int, int, str]

PIECES_MAX = 128  # of one stripe, as src/protect/erasure_code.h has it


@dataclass(frozen=True)
class Parity:
    """The protection of checkpoints on nodes, from df.parity() or df.partner()."""

    data: int
    parity: int
    bytes_per_second: int  # 0: no limit
    domain: str
    close_seconds: float  # how long close() waits for it

    def form(self) -> ParityForm:
        """As the native engine takes it."""
        return (self.data, self.parity, self.bytes_per_second, self.domain)


def parity(
    data: int = 6,
    parity: int = 2,
    *,
    rate: str | float | None = None,
    domain: str | None = None,
    close_seconds: float = 600.0,
) -> Parity:
    """Reed-Solomon parity over groups of nodes, for a run with near="node".

    Each checkpoint outlives the loss of any `parity` nodes of a group, without a farther tier.

    data, parity: A group has about data + parity nodes. Each node stores about parity / data of its
        own bytes more, and reads `parity` times as many from the others, behind training.
    rate: A node reads at most so many bytes per second for it: a number, or "500MB/s".
    domain: The unit that may fail as a whole and takes this node along, such as its switch; for
        Slurm os.environ["SLURM_TOPOLOGY_ADDR"]. Nodes of one domain are put into different groups
        if there are enough. The default is the host. Nodes may differ in it, and in nothing else.
    close_seconds: How long close() waits for the parity of the last checkpoint and for the copies
        on tiers, both together; the longest of all tiers and of this one counts.

    ValueError for numbers below 1, for more than 128 nodes in a group, or a rate that is not
    understood.
    """
    if data < 1 or parity < 1 or data + parity > PIECES_MAX:
        raise ValueError(
            f"parity({data}, {parity}): both are 1 at least, and their sum is {PIECES_MAX} at most"
        )
    return Parity(data, parity, bytes_per_second_of(rate), domain or "", close_seconds)


def partner(
    *, rate: str | float | None = None, domain: str | None = None, close_seconds: float = 600.0
) -> Parity:
    """Nodes in pairs that keep a copy of each other's checkpoints: parity(1, 1).

    Of an odd number of nodes three are one group. See parity() for the arguments.
    """
    return parity(1, 1, rate=rate, domain=domain, close_seconds=close_seconds)
