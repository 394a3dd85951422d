"""show, diff and export: the native program does them, on a temporary run made for the purpose.

For `show` it holds the objects, or the leaf that has the key; for `diff` and `export`
it is a copy of the tensors, so these need as much room as they compare or write.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from deepfreeze.base.progress import human_bytes
from deepfreeze.base.verbs import print_json
from deepfreeze.errors import make_error
from deepfreeze.looking import native
from deepfreeze.looking.ids import Place, is_dcp
from deepfreeze.looking.output import print_table, readable, utc_time
from deepfreeze.looking.stored import Stored


def _stored(text: str) -> Stored:
    return Stored(*Place.of(text).chosen())


def show(options: argparse.Namespace) -> int:
    """Lists a checkpoint's contents, or shows one tensor's statistics or one object's value."""
    stored = _stored(options.run)
    with tempfile.TemporaryDirectory(prefix="deepfreeze-") as folder:
        run = Path(folder) / "run"
        if options.key is not None:
            return _show_key(stored, run, options)
        stored.make_run(run, stored.is_object)
        found, _ = native.document("show", [os.fspath(run)])
    tensors = sorted([*stored.tensors(), *found["tensors"]], key=lambda one: str(one["key"]))
    if options.json:
        document = {"dcp": stored.members, "tensors": tensors, "objects": found["objects"]}
        print_json("show", document)
        return 0
    _print_contents(stored, tensors, found["objects"])
    return 0


def _print_contents(
    stored: Stored, tensors: list[dict[str, Any]], objects: list[dict[str, Any]]
) -> None:
    info, size = stored.commit.info, human_bytes(stored.commit.bytes)
    count = len(stored.commit.streams)
    ranks = f"{count} stream{'' if count == 1 else 's'}"
    heading = f"{stored.id.path} version {info.step}, {utc_time(info.wall_micros)}"
    print(readable(f"{heading}: {len(tensors)} tensors, {size}, {ranks}"))
    if tensors:
        print()
        print_table(["TENSOR", "DTYPE", "SHAPE", ">BYTES"], [_cells(one) for one in tensors])
    if objects:
        print()
        rows = [[one["path"], one["kind"], one["value"]] for one in objects]
        print_table(["OBJECT", "KIND", "VALUE"], rows)


def _cells(one: dict[str, Any]) -> list[str]:
    logical = f" ({one['logical_dtype']})" if "logical_dtype" in one else ""
    return [one["key"], one["dtype"] + logical, str(one["shape"]), human_bytes(one["bytes"])]


def _show_key(stored: Stored, run: Path, options: argparse.Namespace) -> int:
    key: str = options.key
    leaf = next((one for one in stored.keys if key == one or key.startswith(one + ".")), None)
    if leaf is None:
        raise make_error("not_found", f"{stored.id.path} holds no tensor or object {key}")
    stored.verify()
    stored.make_run(run, lambda one: one == leaf)
    if not options.json:
        return _told(["show", os.fspath(run), key], {os.fspath(run): stored.id.path})
    found, code = native.document("show", [os.fspath(run), key])
    parts = ("tensor", "statistics", "object")
    members: dict[str, Any] = {name: found[name] for name in parts if name in found}
    print_json("show", {"dcp": stored.members, **members})
    return code


def diff(options: argparse.Namespace) -> int:
    """Compares two checkpoints, each of an id or of a run."""
    with tempfile.TemporaryDirectory(prefix="deepfreeze-") as folder:
        sides: dict[str, Stored] = {}
        paths = {"a": options.a, "b": options.b}
        for name, text in paths.items():
            if is_dcp(text):
                sides[name] = _stored(text)
                sides[name].verify()
                sides[name].make_run(Path(folder) / name, lambda _: True)
        paths |= {name: os.path.join(folder, name) for name in sides}
        words = [*paths.values(), *(["--all"] if options.all else [])]
        if not options.json:
            shown = {paths[name]: stored.id.path for name, stored in sides.items()}
            return _told(["diff", *words], shown)
        found, code = native.document("diff", words)
    found |= {name: stored.members for name, stored in sides.items()}
    print_json("diff", {name: value for name, value in found.items() if name not in _HEAD})
    return code


_HEAD = ("format", "command")


def export(options: argparse.Namespace) -> int:
    """Writes tensors to a plain safetensors file; the temporary run lies beside it."""
    stored = _stored(options.run)
    wanted = [
        key for key in stored.keys
        if key.startswith(options.prefix) and not stored.is_object(key)
    ]  # fmt: skip
    if not wanted:
        raise make_error("not_found", "no tensor has that prefix")
    beside = os.path.dirname(os.path.abspath(options.out))
    if not os.path.isdir(beside):
        raise make_error("not_found", f"export to {options.out}: its directory is not there")
    stored.verify()
    with tempfile.TemporaryDirectory(prefix=".deepfreeze-export-", dir=beside) as folder:
        run = os.path.join(folder, "run")
        stored.make_run(Path(run), set(wanted).__contains__)
        words = ["export", run, options.out, "--prefix", options.prefix]
        words += ["--keys", *options.keys] if options.keys else []
        words += [flag for flag in ("--force", "--json") if getattr(options, flag[2:])]
        return _told(words, {run: stored.id.path})


def _told(words: list[str], shown: dict[str, str]) -> int:
    """Passes on the program's output, with the paths that the caller knows."""
    done = native.run(words)
    text = done.stdout.decode(errors="replace")
    for path, name in shown.items():
        text = text.replace(json.dumps(path)[1:-1], json.dumps(name, ensure_ascii=False)[1:-1])
    sys.stdout.write(text)
    return done.returncode
