"""The tables: medians of rounds, and ratios within rounds with their spread."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lab.experiments.stores.table import spread

Row = dict[str, Any]
PACK_HEAD = "| state | MB | ratio | packing, GB/s of a core | unpacking, GB/s of a core |"
FLUSH_HEAD = '| state | link, GB/s | None, s | "auto", s | "auto" over None | sent over plain |'


def pack_line(one: Row) -> str:
    size = one["plain"] / 1e9
    cells = [
        one["title"], f"{one['plain'] / 2e6:.1f}", f"{one['plain'] / one['stored']:.2f}",
        f"{size / one['pack_seconds']:.2f}", f"{size / one['unpack_seconds']:.2f}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def rounds_of(flushes: Iterable[Row], link: float, compress: str | None) -> dict[int, Row]:
    return {
        each["round"]: each
        for each in flushes if each["link"] == link and each["compress"] == compress
    }  # fmt: skip


def flush_lines(one: Row) -> list[str]:
    lines = []
    for link in dict.fromkeys(each["link"] for each in one["flushes"]):
        plain = rounds_of(one["flushes"], link, None)
        auto = rounds_of(one["flushes"], link, "auto")
        cells = [
            one["title"], f"{link:g}",
            spread(each["seconds"] for each in plain.values()),
            spread(each["seconds"] for each in auto.values()),
            spread(auto[at]["seconds"] / plain[at]["seconds"] for at in plain),
            spread(auto[at]["sent"] / plain[at]["sent"] for at in plain),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def markdown(told: dict[str, Any]) -> str:
    about = [f"- {name.replace('_', ' ')}: {value}" for name, value in told["machine"].items()]
    loads = spread((one["load"] for one in told["measured"]), 1)
    return "\n".join([
        "# Packed files on tiers", "", f"`{told['command']}`", "", *about,
        f"- load average after each network: {loads}", "",
        "## Packing", "", PACK_HEAD, "|---|---:|---:|---:|---:|",
        *map(pack_line, told["measured"]), "",
        "- MB: of one checkpoint. Packing includes unpacking each block again to compare it.", "",
        "## Flushes of both checkpoints", "", FLUSH_HEAD, "|---|---:|---:|---:|---:|---:|",
        *(line for one in told["measured"] for line in flush_lines(one)), "",
        "- [,]: min-max of the rounds, beside their median; ratios are of the same round", "",
    ])  # fmt: skip
