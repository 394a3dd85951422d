"""The tree that is checked, and C++ text without its comments and strings."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

CPP = {".cc", ".h"}
PYTHON = {".py", ".pyi"}
TEXT = CPP | PYTHON | {".md", ".txt", ".cmake", ".toml", ".json", ".sh", ".yml"}
_SKIPPED = {"build", "dist", "runs", "__pycache__"}


@dataclass(order=True)
class Finding:
    path: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


@dataclass
class Source:
    path: str  # from the root, with /
    text: str

    @property
    def suffix(self) -> str:
        return Path(self.path).suffix

    @property
    def is_cpp(self) -> bool:
        return self.suffix in CPP

    @property
    def is_test(self) -> bool:
        name = Path(self.path).name
        in_tests = "tests" in Path(self.path).parts
        beside = Path(name).stem.endswith(("_test", "_fixture")) or name.startswith("test_")
        return in_tests or beside

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def code_lines(self) -> list[str]:
        """C++ lines with comments and the inside of literals blanked; same line numbers."""
        return blank_literals(self.text).splitlines()


# A raw string, a comment, a string, a character (digit separators are no quotes).
_TOKENS = re.compile(
    r'R"(?P<tag>[^ ()\\\n]{0,16})\(.*?\)(?P=tag)"'
    r"|//[^\n]*|/\*.*?\*/"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)


def blank_literals(text: str) -> str:
    return _TOKENS.sub(_blank, text)


def _blank(match: re.Match[str]) -> str:
    token = match.group()
    if token.startswith("/"):
        return re.sub(r"[^\n]", " ", token)
    kept = re.sub(r"[^\n]", " ", token[1:-1])
    return token[0] + kept + token[-1]


@dataclass
class Tree:
    root: Path
    sources: list[Source] = field(init=False)

    def __post_init__(self) -> None:
        self.sources = [
            Source(path.relative_to(self.root).as_posix(), path.read_text(errors="replace"))
            for path in sorted(self.root.rglob("*"))
            if self._is_checked(path)
        ]

    def _is_checked(self, path: Path) -> bool:
        parts = path.relative_to(self.root).parts
        hidden = any(part.startswith(".") or part in _SKIPPED for part in parts[:-1])
        return not hidden and path.suffix in TEXT and path.is_file()

    @property
    def cpp(self) -> list[Source]:
        return [source for source in self.sources if source.is_cpp]

    def find(self, path: str) -> Source | None:
        return next((source for source in self.sources if source.path == path), None)

    def exceptions(self, kind: str) -> dict[str, int]:
        """tools/ratchet.txt: the lines `kind name number`."""
        ratchet = self.find("tools/ratchet.txt")
        words = [line.split("#")[0].split() for line in ratchet.lines] if ratchet else []
        return {line[1]: int(line[2]) for line in words if len(line) == 3 and line[0] == kind}
