"""The page as one file that opens from disk, without a network: with all data that it shows."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from deepfreeze.errors import CheckpointError
from deepfreeze.exploring import page_files
from deepfreeze.exploring.answers import Answers, dumped
from deepfreeze.exploring.runs import Run
from deepfreeze.exploring.tensor_numbers import BINS, QUANTITIES

_MATRIX_BYTES_MAX = 32 << 20  # of one run, all quantities; with more, steps are left out
_HISTOGRAM_BYTES_MAX = 8 << 20
_HISTOGRAM_STEPS_MAX = 24
_LINK = '<link rel="stylesheet" href="style.css">'
_SCRIPT = '<script type="module" src="main.js"></script>'
_ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def write(path: Path, answers: Answers) -> int:
    """Writes the file whole, or not at all; its size."""
    data = page(answers).encode()
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o644 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return len(data)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def page(answers: Answers) -> str:
    """The page with its data. Its policy allows these two texts, and no address."""
    style, script = page_files.text_of(page_files.STYLE), page_files.one_script()
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    data = dumped(_data(answers)).decode().translate(_ESCAPES)
    whole = page_files.text_of(page_files.INDEX)
    for mark, text in (
        (_LINK, f"{meta}\n<style>{style}</style>"),
        (_SCRIPT, f'<script type="application/json" id="data">{data}</script>\n'
                  f'<script type="module">{script}</script>'),
    ):  # fmt: skip
        before, found, after = whole.partition(mark)
        if not found:
            raise CheckpointError(f"the page has no {mark}", code="internal")
        whole = before + text + after
    return whole


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _data(answers: Answers) -> dict[str, Any]:
    """Answers by the address at which a server gives them; matrices are packed."""
    data: dict[str, Any] = {}
    for run in answers.runs:
        data |= _numbers(answers, run)
        data[f"flags/{run.id}"] = answers.flags(run.id)
        data |= _analyses(answers, run)
    for pair in _pairs(answers):
        try:
            data["/".join(("compare", *pair))] = answers.compare(*pair)
        except CheckpointError:  # a bad step; the page says so
            continue
    return {"model": answers.model(), **data}


def _analyses(answers: Answers, run: Run) -> dict[str, Any]:
    listed = answers.analyses(run.id)
    data: dict[str, Any] = {f"analyses/{run.id}": listed}
    for each in listed["analyses"]:
        if not each["fault"]:
            with contextlib.suppress(CheckpointError):  # deleted meanwhile
                data[f"analysis/{run.id}/{each['name']}"] = answers.analysis(run.id, each["name"])
    return data


def _numbers(answers: Answers, run: Run) -> dict[str, Any]:
    numbers = answers.numbers(run.id)
    about = answers.tensors(run.id)
    size = 4 * len(QUANTITIES) * max(1, len(about["tensors"]))
    columns = _thinned(len(numbers.columns), max(2, _MATRIX_BYTES_MAX // size))
    about["left_out"] = len(numbers.columns) - len(columns)
    about["columns"] = [about["columns"][column] for column in columns]
    data: dict[str, Any] = {f"tensors/{run.id}": about}
    for name in QUANTITIES:
        matrix = numbers.matrix(name)[:, columns]
        data[f"matrix/{run.id}/{name}"] = _packed(np.asarray(matrix, "<f4").tobytes())
    count = min(_HISTOGRAM_STEPS_MAX, len(columns))
    if len(about["tensors"]) * count * BINS <= _HISTOGRAM_BYTES_MAX:
        chosen = _thinned(len(columns), count)
        bins = numbers.histograms_of_all([columns[column] for column in chosen])
        packed = _packed(bins.tobytes())
        data[f"histograms/{run.id}"] = {"columns": chosen, "data": packed}
    return data


def _thinned(count: int, most: int) -> list[int]:
    """At most so many places of a list, evenly, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(place * (count - 1) / (most - 1)) for place in range(most)})


def _packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 6)).decode()


def _pairs(answers: Answers) -> list[tuple[str, str, str, str]]:
    """The comparisons that the file has: ends of each run, and of each fork with its parent."""
    by_id = {run.id: run for run in answers.runs}
    pairs: dict[tuple[str, str, str, str], None] = {}
    for run in answers.runs:
        line = [step for step in run.committed if step.on_line and not step.fault]
        if not line:
            continue
        for step in (line[0], line[-2] if len(line) > 1 else line[0]):
            if step is not line[-1]:
                pairs[run.id, step.attempt, run.id, line[-1].attempt] = None
        parent = by_id.get(run.parents[0].run or "") if run.parents else None
        if parent is not None:
            theirs = [step for step in parent.committed if step.on_line and not step.fault]
            if theirs:
                pairs[parent.id, theirs[-1].attempt, run.id, line[-1].attempt] = None
    return list(pairs)
