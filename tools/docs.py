#!/usr/bin/env python3
"""`make docs`: the documentation as a site, in build/site.

1. build/docs-venv from this interpreter, with the versions of tools/requirements-docs.txt. It needs
   neither .venv nor a compiler, and a second call only compares hashes.
2. The pages of docs/, a few from elsewhere, and the reference of the Python package, which is read
   and not imported (tools/docs_site). A warning is an error.
3. The pages are read again: each link leads somewhere, and nothing is loaded from a network.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from docs_site import built
from environments import Environment, ready
from stamp import BUILD, ROOT

SITE = BUILD / "site"
CONFIG = ROOT / "tools" / "docs_site" / "mkdocs.yml"
REQUIREMENTS = ROOT / "tools" / "requirements-docs.txt"
# The theme prints its opinion of a future MkDocs, in every build.
QUIET = {"NO_MKDOCS_2_WARNING": "1"}


def build(python: str) -> int:
    command = [python, "-m", "mkdocs", "build", "--strict", "--config-file", str(CONFIG)]
    environment = {**os.environ, **QUIET, "PYTHONPATH": str(ROOT / "tools")}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0:  # --quiet would hide warnings from --strict, too
        print(done.stderr, end="", file=sys.stderr)
    return done.returncode


def main() -> int:
    began = time.monotonic()
    wanted = Environment(BUILD / "docs-venv", REQUIREMENTS, maker=sys.executable)
    if ready(wanted) != 0 or build(wanted.python) != 0:
        return 1
    faults = built.faults(SITE)
    for fault in faults:
        print(f"docs: {fault}", file=sys.stderr)
    if faults:
        return 1
    print(f"docs: {SITE.relative_to(ROOT)}/index.html, in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
