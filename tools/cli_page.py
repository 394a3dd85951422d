#!/usr/bin/env python3
"""Writes docs/cli.md from the help texts of the installed program.

`.venv/bin/python tools/cli_page.py`, after `make build`. python/tests/test_documents.py fails if
the page differs from them.
"""

from __future__ import annotations

import os
import re
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
WIDTH = 120
FORM_WIDTH = 84  # fits beside the navigation of the site
HEAD = """\
# The command line

<!-- written by tools/cli_page.py -->

"""
INTRODUCTION = (
    "Look up a verb of the program `deepfreeze` and its options. "
    "[From the shell](using.md#from-the-shell) shows the usual ones, and "
    "[operations](start/operations.md) a day with them. "
    "`deepfreeze VERB --help` prints the same."
)
STUDY = (
    "Described in [the study](../lab/STUDY.md): it needs a checkout, and has options of its own."
)
_TITLES = {"Positionals:", "Options:", "positional arguments:", "options:"}
_ENTRY = re.compile(r" {2}(?P<name>\S.*?)(?: {2,}(?P<text>\S.*))?")
_HELP = re.compile(r"-h,\s*--help")
# As CLI11 prints a name: its type, its range, its default, and whether it must be given.
_NAME = re.compile(
    r"(?P<name>\S+) (?P<type>TEXT|UINT|FLOAT)(?::POSITIVE|:UINT in \[.*?\])?"
    r"(?:=(?P<default>\S+))?(?P<more> \.\.\.)?(?P<required> REQUIRED)?"
)
_TYPES = {"TEXT": "TEXT", "UINT": "NUMBER", "FLOAT": "NUMBER"}
_OPERATOR = re.compile(r"(?<=\s)([<>=!]+)(?=[\s,.])")


def help_of(program: str, *verb: str) -> str:
    command = [program, *verb, "--help"]
    environment = {**os.environ, "COLUMNS": "100"}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout


def page(program: str) -> str:
    main = help_of(program)
    listed = main.partition("Subcommands:\n")[2].partition("\n\n")
    verbs = dict(_entries(listed[0].splitlines()))
    notes = listed[2].strip().split("\n\n")
    parts = [HEAD + _wrapped(INTRODUCTION), "\n".join(_notes(notes[0].splitlines())), _table({
        f"[{name}](#{name})": text for name, text in verbs.items()
    }, "verb")]  # fmt: skip
    for name, text in verbs.items():
        parts.append(f"## {name}\n")
        if name == "study":
            parts.append(_wrapped(f"{text}. {STUDY}"))
        else:
            parts += _of_verb(help_of(program, name))
    return "\n".join(parts).rstrip() + "\n"


def _of_verb(text: str) -> Iterator[str]:
    """The description, the usage, the arguments and the notes of a verb."""
    text = re.sub(r"^[Uu]sage: ", "@usage ", text, flags=re.MULTILINE)
    blocks = [block.splitlines() for block in re.split(r"\n(?=@usage)|\n\n", text.strip())]
    usage = next(block for block in blocks if block[0].startswith("@usage"))
    titled = [block for block in blocks if block[0] in _TITLES]
    others = [block for block in blocks if block is not usage and block not in titled]
    description = " ".join(others[0])
    yield _wrapped(description if description.endswith(".") else f"{description}.")
    first, *more = usage
    shown = [first.removeprefix("@usage "), *(f"{'':16}{line.strip()}" for line in more)]
    yield "```text\n" + "\n".join(shown) + "\n```\n"
    arguments = [pair for block in titled for pair in _entries(block[1:])]
    yield _table(dict(_shown(*pair) for pair in arguments if not _HELP.match(pair[0])), "argument")
    for block in others[1:]:
        yield from _notes(block)


def _entries(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Names and texts; a text may begin on the line after its name, and go on."""
    name, texts = "", list[str]()
    for line in lines:
        entry = _ENTRY.fullmatch(line)
        if entry and not line.startswith("   "):
            if name:
                yield name, " ".join(texts)
            name, texts = entry["name"], [entry["text"]] if entry["text"] else []
        else:
            texts.append(line.strip())
    if name:
        yield name, " ".join(texts)


def _shown(name: str, text: str) -> tuple[str, str]:
    """An argument as it is written, and its meaning with its default."""
    found = _NAME.fullmatch(name)
    if found is None:
        return f"`{name}`", text
    written = found["name"] + (found["more"] or "")
    if name.startswith("-"):
        written = f"{found['name']} {_TYPES[found['type']]}{found['more'] or ''}"
    needed = "; must be given" if found["required"] and name.startswith("-") else ""
    default = f"; default: {found['default']}" if found["default"] else ""
    return f"`{written}`", f"{text}{needed}{default}"


def _table(rows: dict[str, str], title: str) -> str:
    escaped = {name: text.replace("|", "\\|").replace("*", "\\*") for name, text in rows.items()}
    lines = [f"| {title} | means |", "|---|---|"]
    return "\n".join([*lines, *(f"| {name} | {text} |" for name, text in escaped.items())]) + "\n"


def _notes(lines: list[str]) -> Iterator[str]:
    """Sentences as a paragraph, a list in columns as it is, and the form of --json by itself."""
    start = next((i for i, line in enumerate(lines) if line.startswith("--")), len(lines))
    end = next((i for i, line in enumerate(lines) if line.startswith("Exit:")), len(lines))
    words, form, exits = lines[:start], lines[start : max(start, end)], lines[max(start, end) :]
    if start > end:
        words, exits = lines[:end], lines[end:]
    if any(line.startswith(" ") for line in words):
        yield "```text\n" + "\n".join(words) + "\n```\n"
    elif words:
        yield _wrapped(" ".join(words))
    if form:
        yield "```text\n" + "\n".join(_filled(form)) + "\n```\n"
    if exits:
        yield _wrapped(" ".join(exits))


def _filled(lines: list[str]) -> Iterator[str]:
    """Each form of --json in lines of equal width."""
    for each in re.split(r"\n(?=--)", "\n".join(lines)):
        joined = " ".join(each.split())
        yield from textwrap.wrap(joined, FORM_WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _wrapped(text: str) -> str:
    text = _OPERATOR.sub(r"`\1`", " ".join(text.split()))
    text = text.replace("*", "\\*").replace("|", "\\|")
    return textwrap.fill(text, WIDTH, break_on_hyphens=False, break_long_words=False) + "\n"


if __name__ == "__main__":
    from deepfreeze.base.program import find

    found = find()
    if found is None:
        raise SystemExit("cli_page: there is no program: make build")
    PAGE.write_text(page(str(found)))
