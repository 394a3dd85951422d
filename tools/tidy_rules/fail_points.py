"""Every fail point is named in a test, so that a test stops there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .source import Finding, Tree

_POINT = re.compile(r'\bDF_FAIL_POINT\(\s*"([^"]+)"\s*\)')
_DEFINITION = "src/base/fail_point.h"


def check(tree: Tree) -> Iterator[Finding]:
    tests = "\n".join(source.text for source in tree.sources if source.is_test)
    for source in tree.cpp:
        if source.is_test or source.path == _DEFINITION:
            continue
        for number, line in enumerate(source.lines, 1):
            for name in _POINT.findall(line):
                if name not in tests:
                    text = f'no test stops at "{name}"'
                    yield Finding(source.path, number, "fail point", text)
