"""Compares two steps, of one run or of two."""

from __future__ import annotations

from typing import Any

from deepfreeze import _core
from deepfreeze.errors import make_error
from deepfreeze.exploring.cache import Cache, StepNumbers, digest_of, name_of
from deepfreeze.exploring.kinds import leaves_of
from deepfreeze.exploring.runs import Run
from deepfreeze.exploring.step_numbers import compute
from deepfreeze.exploring.steps import ODD, Step
from deepfreeze.exploring.tensor_numbers import QUANTITIES
from deepfreeze.exploring.tensor_reading import Form, forms_of

_VALUES_MAX = 1000
_COLUMNS = ("norm", "delta", "cosine", "changed", "non_finite")
_ROWS = {name: QUANTITIES.index(name) for name in _COLUMNS}


def compare(
    one: tuple[Run, Step], other: tuple[Run, Step], cache: Cache, *, reads: bool = True
) -> dict[str, Any]:
    """The second step, as it differs from the first; from the cache alone unless it `reads`."""
    before, after = one[1].info, other[1].info
    if before is None or after is None:
        step = (one if before is None else other)[1]
        cause = step.fault or f"it is {step.state}"
        raise make_error("corrupt", f"step {step.step} can't be read: {cause}")
    numbers, damaged = _numbers(other[0], after, before, cache, reads=reads)
    opened = _core.open_checkpoint(before), _core.open_checkpoint(after)
    old = {form.key: form for form in forms_of(opened[0])}
    rows = [
        _row(numbers, place, old.get(form.key), damaged)
        for place, form in enumerate(numbers.table.forms)
    ]
    new = {form.key for form in numbers.table.forms}
    rows += [
        {"key": form.key, "kind": "", "change": "removed", "before": _form_text(form)}
        for key, form in old.items()
        if key not in new
    ]
    try:
        values = _values(opened[0].objects(), opened[1].objects())
    except ODD as error:
        raise make_error("corrupt", f"their values can't be understood: {error!r}") from error
    return {"tensors": rows, "values": values}


def _numbers(
    run: Run,
    after: _core.CheckpointInfo,
    before: _core.CheckpointInfo,
    cache: Cache,
    *,
    reads: bool,
) -> tuple[StepNumbers, dict[str, str]]:
    name = name_of(after.attempt_id, digest_of(after.path), before.attempt_id)
    found = cache.find(run.run_id or "unknown", name)
    whole = None if found is None else found.whole()
    if whole is not None:
        return whole, {}
    if not reads:
        text = f"steps {before.step} and {after.step} were not compared before, and --no-read "
        raise make_error("not_found", f"{text}reads no tensors: start again without it")
    done = compute(after, before, lambda _: None)
    if done.is_whole:
        cache.keep(run.run_id or "unknown", name, done.numbers)
    return done.numbers, done.damaged | done.uncompared


def _row(
    numbers: StepNumbers, place: int, old: Form | None, damaged: dict[str, str]
) -> dict[str, Any]:
    form = numbers.table.forms[place]
    row: dict[str, Any] = {"key": form.key, "kind": numbers.table.kinds[place]}
    row |= {name: float(numbers.rows[_ROWS[name], place]) for name in _COLUMNS}
    row["elements"] = form.elements
    if form.key in damaged:
        row["change"] = "damaged"
    elif old is None:
        row["change"] = "added"
    elif old != form:
        row |= {"change": "another form", "before": _form_text(old), "after": _form_text(form)}
    else:
        row["change"] = "changed" if row["changed"] > 0 else "same"
    return row


def _form_text(form: Form) -> str:
    return f"{form.logical or form.dtype}{list(form.shape)}"


def _values(before: str, after: str) -> list[dict[str, str | None]]:
    """Values of the tree that differ: options, counters, positions."""
    old = {leaf.path: leaf.text for leaf in leaves_of(before) if not leaf.key}
    new = {leaf.path: leaf.text for leaf in leaves_of(after) if not leaf.key}
    found: list[dict[str, str | None]] = [
        {"path": path, "before": old.get(path), "after": new.get(path)}
        for path in dict.fromkeys([*old, *new])
        if old.get(path) != new.get(path)
    ]
    return found[:_VALUES_MAX]
