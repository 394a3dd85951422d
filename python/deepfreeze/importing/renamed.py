"""A source's arrays under other names, and in another order of their dimensions."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepfreeze.importing.content import Content, content_of
from deepfreeze.importing.source_files import fault

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deepfreeze.state.entry import Entry

_STEPS: dict[str, Callable[[Any, list[int]], Any]] = {
    "reshape": lambda array, sizes: array.reshape(sizes),
    "transpose": lambda array, order: array.transpose(order),
}


def renamed(content: Content, path: Path, source: Path) -> Content:
    """The arrays that a map chooses from a content, under the map's names, in one dict.

    The map is a JSON object. Each new name has the old name as its value, or {"from": old, "do":
    [["reshape", 5, 7], ["transpose", 1, 0]]} with steps of NumPy in their order. Arrays that it
    does not name are left out.
    """
    entries = {entry.key: entry for entry in content.entries}
    state = {name: _made(name, rule, entries, path) for name, rule in _rules(path).items()}
    taken = {_source_of(rule) for rule in _rules(path).values()}
    left = sorted(entries.keys() - taken)
    made = content_of(state, source, content.files, unpacked_bytes=content.unpacked_bytes)
    made.owners.append(content.owners)
    warnings = [f"the map leaves out {name}" for name in left]
    made.warnings = [*content.warnings, *warnings]
    return made


def _rules(path: Path) -> dict[str, Any]:
    try:
        rules = json.loads(path.read_text())
    except OSError as cause:
        raise fault(path, "", cause.strerror or cause, "invalid_argument") from cause
    except ValueError as cause:
        raise fault(path, "", cause, "invalid_argument") from cause
    if not isinstance(rules, dict) or not all(map(_is_rule, rules.values())):
        text = 'it is not {NEW: OLD or {"from": OLD, "do": [["reshape" or "transpose", N, ...]]}}'
        raise fault(path, "", text, "invalid_argument")
    return rules


def _is_rule(rule: object) -> bool:
    if isinstance(rule, str):
        return True
    if not isinstance(rule, dict) or not isinstance(rule.get("from"), str):
        return False
    steps = rule.get("do", [])
    return rule.keys() <= {"from", "do"} and isinstance(steps, list) and all(map(_is_step, steps))


def _is_step(step: object) -> bool:
    is_named = isinstance(step, list) and step[:1] and step[0] in _STEPS
    return bool(is_named) and all(type(each) is int for each in step[1:])  # type: ignore[index]


def _source_of(rule: Any) -> str:
    return rule if isinstance(rule, str) else str(rule["from"])


def _made(name: str, rule: Any, entries: dict[str, Entry], path: Path) -> NDArray[Any]:
    old = _source_of(rule)
    entry = entries.get(old)
    if entry is None:
        raise fault(path, f"({name})", f"the source has no array {old}", "invalid_argument")
    array = _view(entry)
    try:
        for step, *numbers in [] if isinstance(rule, str) else rule.get("do", []):
            array = _STEPS[step](array, numbers)
    except ValueError as cause:
        text = f"{old}, {list(array.shape)}: {step} {numbers}: {cause}"
        raise fault(path, f"({name})", text, "invalid_argument") from cause
    return array


def _view(entry: Entry) -> NDArray[Any]:
    """The entry's memory, which the content keeps."""
    import numpy as np

    from deepfreeze.frameworks.numpy import numpy_dtype
    from deepfreeze.state.dtypes import logical_form

    dtype, shape = logical_form(entry.dtype, entry.shape, entry.logical_dtype)
    raw: Any = (ctypes.c_char * entry.bytes).from_address(entry.address) if entry.bytes else b""
    view: NDArray[Any] = np.frombuffer(raw, numpy_dtype(dtype)).reshape(shape)
    return view
