"""The tables of a measurement: medians of rounds, and ratios within rounds with their spread."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

from .clients import OWN

Row = dict[str, Any]
UPLOAD, DOWNLOAD, ONE = "upload", "download", "one"
TITLES = {UPLOAD: "Upload", DOWNLOAD: "Download"}
HEAD = "| client | GB/s | CPU s/GB | GB/s of DeepFreeze's | CPU over DeepFreeze's |"
ONES = "| client | tensor, MB | bytes fetched over its own |"
RULE = "|---|---|---|---|---|"


def speed(row: Row) -> float:
    return float(row["bytes"] / 1e9 / row["seconds"])


def cost(row: Row) -> float:
    return float((row["user_seconds"] + row["system_seconds"]) * 1e9 / row["bytes"])


def spread(values: Iterable[float], digits: int = 2) -> str:
    found = sorted(values)
    if not found:
        return "-"
    return f"{median(found):.{digits}f} [{found[0]:.{digits}f}, {found[-1]:.{digits}f}]"


def measured(rows: Iterable[Row], server: str, what: str) -> dict[str, dict[int, Row]]:
    """By client and round."""
    found: dict[str, dict[int, Row]] = {}
    for row in rows:
        if row["server"] == server and row["what"] == what and "error" not in row:
            found.setdefault(row["client"], {})[row["round"]] = row
    return found


def table(found: dict[str, dict[int, Row]]) -> list[str]:
    own = found.get(OWN, {})
    lines = [HEAD, RULE]
    for client, rounds in found.items():

        def over(figure: Callable[[Row], float], rounds: dict[int, Row] = rounds) -> str:
            pairs = ((figure(rounds[one]), figure(own[one])) for one in rounds if one in own)
            return spread(ours and theirs / ours for theirs, ours in pairs)

        cells = [spread(map(speed, rounds.values())), spread(map(cost, rounds.values()), 3)]
        cells += ["1", "1"] if client == OWN else [over(speed), over(cost)]
        lines.append(f"| {client} | {' | '.join(cells)} |")
    return lines


def section(told: dict[str, Any], server: str) -> list[str]:
    rows = [row for row in told["rows"] if row["server"] == server]
    lines = []
    for what, title in TITLES.items():
        found = measured(rows, server, what)
        if not found:
            continue
        first = next(iter(next(iter(found.values())).values()))
        count = max(map(len, found.values()))
        rounds = f"{count} round{'s' * (count > 1)}"
        loads = [row["load"] for one in found.values() for row in one.values()]
        lines += [f"### {title}, {server}", "",
                  f"{first['bytes'] / 1e6:.1f} MB; {rounds}; load average {spread(loads, 1)}", "",
                  *table(found), ""]  # fmt: skip
    ones = measured(rows, server, ONE)
    if ones:
        lines += ["### One tensor of a checkpoint", "",
                  ONES, "|---|---|---|"]  # fmt: skip
        for client, found_of in ones.items():
            (row,) = found_of.values()
            share = row["fetched"] / row["bytes"]
            lines.append(f"| {client} | {row['bytes'] / 1e6:.1f} | {share:.3f} |")
        lines.append("")
    failed = {(row["client"], row["what"]): row["error"] for row in rows if "error" in row}
    return lines + [f"- FAILED: {' '.join(who)}: {why}" for who, why in failed.items()]


def markdown(told: dict[str, Any]) -> str:
    about = [f"- {name.replace('_', ' ')}: {value}" for name, value in told["machine"].items()]
    servers = dict.fromkeys(row["server"] for row in told["rows"])
    parts = [line for server in servers for line in section(told, server)]
    return "\n".join([
        "# Checkpoints to an object store and back", "", f"`{told['command']}`", "",
        *about, "", *parts, "",
        "- [,]: min-max of the rounds, beside their median; ratios are of the same round",
        "",
    ])  # fmt: skip


def publish(options: argparse.Namespace, told: dict[str, Any], text: str) -> None:
    """Prints the text, and writes the files that --json and --markdown name."""
    print(text)
    if options.json:
        options.json.write_text(json.dumps(told, indent=1) + "\n")
    if options.markdown:
        options.markdown.write_text(text)
