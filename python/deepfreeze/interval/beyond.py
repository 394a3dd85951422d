"""Places beyond this process at which checkpoints go on: nodes, farther tiers, and an agent."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypedDict

from deepfreeze.base import program
from deepfreeze.base.arguments import absolute
from deepfreeze.interval.parity import Parity, ParityForm
from deepfreeze.interval.sizes import bytes_max_of
from deepfreeze.interval.tier import Tier, TierForm

# An agent that we start ends by itself, so long after the last trainer and the last copy.
_IDLE_SECONDS = 60


class BeyondThisProcess(TypedDict):
    """The engine's own arguments for it."""

    commit_wait_max_seconds: float
    audit_saves: int
    tiers: list[TierForm]
    bytes_max: int | None
    drain_wait_max_seconds: float
    agent: tuple[str, list[str]] | None
    nodes: tuple[str, ParityForm | None] | None  # the interface of their links, and parity


def beyond_process(
    tiers: Sequence[Tier],
    agent: str | os.PathLike[str] | None,
    bytes_max: str | float | None,
    near: str,
    link: str,
    protect: Parity | None,
    commit_wait_seconds: float,
    audit_saves: int,
) -> BeyondThisProcess:
    """Takes them as Checkpointer() does; `agent` is "auto", the directory of a socket, or None."""
    if near not in ("shared", "node"):
        raise ValueError(f'near: "shared" or "node", not {near!r}')
    if not link:
        raise ValueError(f'link: "auto" or the name of a network interface, not {link!r}')
    if protect is not None and near == "shared":
        raise ValueError('protect: parity is for nodes with a path of their own: give near="node"')
    waits = [each.close_seconds for each in (*tiers, protect) if each is not None]
    return {
        "commit_wait_max_seconds": commit_wait_seconds,
        "audit_saves": audit_saves,
        "tiers": [tier.form() for tier in tiers],
        "bytes_max": bytes_max_of(bytes_max),
        "drain_wait_max_seconds": max(waits, default=0.0),
        "agent": None if agent is None else _agent_form(agent),
        "nodes": None if near == "shared" else _nodes_form(link, protect),
    }


def _nodes_form(link: str, protect: Parity | None) -> tuple[str, ParityForm | None]:
    return "" if link == "auto" else link, None if protect is None else protect.form()


def _agent_form(agent: str | os.PathLike[str]) -> tuple[str, list[str]]:
    directory = "" if agent == "auto" else os.fspath(absolute(agent))
    found = program.find()
    # Without the program only an agent that is at work already can be used; the engine says so.
    command = [] if found is None else [str(found), "agent", "--idle", str(_IDLE_SECONDS)]
    return directory, command
