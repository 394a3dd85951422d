"""The command `deepfreeze import`: its arguments, its output and its exit codes."""

from __future__ import annotations

import argparse
import io
import os
import resource
import sys
from pathlib import Path
from typing import Any

from deepfreeze import _core
from deepfreeze.base.arguments import absolute
from deepfreeze.base.progress import Progress, human_bytes
from deepfreeze.base.verbs import (
    FAILURE,
    GOOD,
    INTERRUPTED,
    add_verb,
    failed,
    print_json,
    printable,
)
from deepfreeze.errors import CheckpointError
from deepfreeze.importing.content import Content, Reading
from deepfreeze.importing.recognise import KINDS, kind_of, reader_of
from deepfreeze.importing.renamed import renamed
from deepfreeze.importing.saving import check_step, store
from deepfreeze.importing.source_files import fault, os_fault

_STEP_MAX = (1 << 64) - 1

_DESCRIPTION = "Make a checkpoint of a run out of one that another library wrote."
_EPILOG = """\
SOURCE is one of
  dcp          a directory of torch.distributed.checkpoint
  torch        a file of torch.save; nothing in it is run: a class that torch.load refuses with
               weights_only=True is refused by name
  safetensors  such a file, or a directory with one, or with an index as of Hugging Face
  npz          a file of numpy.savez, or of Chainer's serializers
  keras        a .weights.h5 or .keras of Keras 3 (needs h5py)
  tensorflow   the .index of a tf.train.Checkpoint, or a directory with one (needs TensorFlow)
  orbax        a directory of Orbax, or a step of its CheckpointManager (needs JAX and Orbax)
RUN is made if it does not exist. Its newest step must be older than N, and nobody else may be
saving to it. docs/import.md describes the step's content, and its restore.

--json: {source, kind, run, checkpoint: {generation, step, save, attempt}, tensors, bytes, warnings}
Exit: 0 good, 2 usage, 3 any other failure. After a failure the run is as it was,
unless only the output could not be written.
"""


def add_to(verbs: Any) -> None:
    """Adds the verb to the parsers of a program."""
    parser = add_verb(verbs, "import", _DESCRIPTION, _EPILOG, _main)
    parser.add_argument("source", metavar="SOURCE", type=Path, help="The checkpoint to import")
    parser.add_argument("run", metavar="RUN", type=_run, help="The run's directory")
    parser.add_argument(
        "--step", metavar="N", type=_step, default=0, help="The step that it becomes; default: 0"
    )
    parser.add_argument(
        "--from",
        dest="kind",
        choices=KINDS,
        help="SOURCE's kind; default: found by its content",
    )
    parser.add_argument(
        "--map",
        type=Path,
        metavar="FILE",
        help="JSON that maps new names to old ones: imports these alone; docs/import.md",
    )


def _run(text: str) -> Path:
    # As src/cli/run_ref.h reads it: an existing directory is taken whole, '@' or not.
    if "@" in text and not os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"{text!r}: a whole run is needed, without '@'")
    return absolute(text, "RUN")


def _step(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > _STEP_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no step")
    return int(text)


def _main(options: argparse.Namespace) -> int:
    _open_as_many_files_as_can_be()
    try:
        done = _import(options)
    except CheckpointError as error:
        return failed("import", error.code, str(error), as_json=options.json)
    except KeyboardInterrupt:
        print("deepfreeze import: interrupted", file=sys.stderr)
        return INTERRUPTED
    for warning in done["warnings"]:
        print(f"warning: {printable(warning)}", file=sys.stderr)
    try:
        _tell(done, as_json=options.json)
    except OSError as cause:
        print(f"deepfreeze import: write standard output: {cause}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python still flushes its output at exit
        return FAILURE
    return GOOD


def _tell(done: dict[str, Any], *, as_json: bool) -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if as_json:
        print_json("import", done)
    else:
        amount = f"{done['tensors']} tensors, {human_bytes(done['bytes'])}"
        step = done["checkpoint"]["step"]
        print(f"{amount}, from {done['kind']}, to {printable(done['run'])}, step {step}")
    sys.stdout.flush()


def _open_as_many_files_as_can_be() -> None:
    """A file of each of a thousand ranks may be mapped at one time."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _import(options: argparse.Namespace) -> dict[str, Any]:
    run: Path = options.run
    check_step(run, options.step)
    kind: str = options.kind or kind_of(options.source)
    content = _read(options.source, kind, Reading(_existing(run), Progress))
    if options.map is not None:
        content = renamed(content, options.map, options.source)
    size = sum(entry.bytes for entry in content.entries)
    with Progress("import", size) as progress:
        info = store(content, run, options.step, _tags(options.source, kind), progress)
    return {
        "source": os.fspath(options.source),
        "kind": kind,
        "run": os.fspath(run),
        "checkpoint": _point(info),
        "tensors": len(content.entries),
        "bytes": size,
        "warnings": content.warnings,
    }


def _read(source: Path, kind: str, reading: Reading) -> Content:
    read = reader_of(kind)
    try:
        return read(source, reading)
    except CheckpointError:
        raise
    except OSError as cause:
        raise os_fault(source, cause) from cause
    except Exception as cause:  # an error of torch or Python that nobody foresaw
        raise fault(source, "", repr(cause), "internal") from cause


def _tags(source: Path, kind: str) -> dict[str, str]:
    path = os.path.abspath(source)
    return {"imported_from": path.encode(errors="replace").decode(), "imported_kind": kind}


def _point(info: _core.CheckpointInfo) -> dict[str, Any]:
    return {
        "generation": info.generation,
        "step": info.step,
        "save": info.save_index,
        "attempt": info.attempt_id,
    }


def _existing(path: Path) -> Path:
    """The nearest folder that exists."""
    path = path.absolute()
    return next(folder for folder in (path, *path.parents) if folder.is_dir())
