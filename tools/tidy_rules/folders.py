"""Every folder of src/ explains itself in a README.md of at most 25 lines."""

from __future__ import annotations

from collections.abc import Iterator

from .source import Finding, Tree

README_LINES_MAX = 25


def check(tree: Tree) -> Iterator[Finding]:
    with_code = {
        "/".join(source.path.split("/")[:2])
        for source in tree.cpp
        if source.path.startswith("src/") and source.path.count("/") >= 2
    }
    for folder in sorted(with_code):
        readme = tree.find(f"{folder}/README.md")
        if readme is None:
            yield Finding(folder, 1, "readme", "needs a README.md: purpose, flow, what belongs")
        elif len(readme.lines) > README_LINES_MAX:
            text = f"{len(readme.lines)} lines, {README_LINES_MAX} at most"
            yield Finding(readme.path, 1, "readme", text)
