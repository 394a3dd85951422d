#!/usr/bin/env python3
"""The style rules that a program can check (CONTRIBUTING.md has the rest).

tidy.py [--no-headers] [ROOT]: prints one line per finding, exit 1 if there is any. Known
exceptions are listed in tools/ratchet.txt, which may only shrink.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tidy_rules import (
    banned,
    fail_points,
    folders,
    headers,
    layers,
    links,
    prose,
    python_layers,
    ratchets,
)
from tidy_rules.source import Finding, Tree


def check(tree: Tree, compile_headers: bool) -> list[Finding]:
    findings = [
        *layers.check(tree),
        *python_layers.check(tree),
        *banned.check(tree),
        *ratchets.check(tree),
        *folders.check(tree),
        *fail_points.check(tree),
        *prose.check(tree),
        *links.check(tree),
    ]
    if compile_headers:
        findings += headers.check(tree)
    return sorted(findings)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parent.parent)
    parser.add_argument("--no-headers", action="store_true", help="do not compile the headers")
    options = parser.parse_args()
    findings = check(Tree(options.root.resolve()), not options.no_headers)
    for finding in findings:
        print(finding)
    if findings:
        print(f"tidy: {len(findings)} findings", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
