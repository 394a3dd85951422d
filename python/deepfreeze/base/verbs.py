"""Parts that the verbs written in Python share: arguments, exit codes, and failures."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

GOOD, DIFFERENT, USAGE, FAILURE, INTERRUPTED = 0, 1, 2, 3, 130  # exit codes, as in src/cli
JSON_FORMAT = 1  # of every --json document, as in src/cli/console.h


def add_verb(
    verbs: Any,
    name: str,
    description: str,
    epilog: str,
    main: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    """Adds a verb with --json to the parsers of a program; `main` returns its exit code."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=description,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="Print one JSON document")
    parser.set_defaults(main=main)
    return parser


def print_json(verb: str, members: dict[str, Any]) -> None:
    """Prints the document of --json, in ASCII: standard output may have any encoding."""
    print(json.dumps({"format": JSON_FORMAT, "command": verb, **members}, indent=2))


def failed(verb: str, code: str, message: str, *, as_json: bool) -> int:
    """Tells of an error with that native code, and returns the exit code."""
    print(f"deepfreeze {verb}: {printable(message)}", file=sys.stderr)
    if as_json:
        print_json(verb, {"error": {"code": code, "message": message}})
    return USAGE if code == "invalid_argument" else FAILURE


def printable(text: str) -> str:
    """The text with control characters escaped: a file's text must not steer the terminal."""
    return "".join(
        char if char >= " " and not "\x7f" <= char < "\xa0" else f"\\x{ord(char):02x}"
        for char in text.encode(errors="backslashreplace").decode()
    )
