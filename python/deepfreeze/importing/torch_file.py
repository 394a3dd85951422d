"""Files of torch.save."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deepfreeze.errors import CheckpointError
from deepfreeze.frameworks.torch.files import RefusedError, allowed, load, storage_item_bytes
from deepfreeze.importing.content import Content, Reading, content_of
from deepfreeze.importing.pickle_names import names_in
from deepfreeze.importing.source_files import SourceFile, fault, stream_of
from deepfreeze.importing.storages import ClaimError, storages_in
from deepfreeze.importing.zip_records import MAGIC, Archive

_OLD_PICKLES = 5  # the number of pickles that the old format begins with


def read(path: Path, reading: Reading) -> Content:
    """The file's value. Its tensors stay in the file, unless it is of the old format."""
    file = SourceFile(path)
    is_zip = bytes(file.memory[: len(MAGIC)]) == MAGIC
    state = _mapped(Archive(file, 0, file.bytes), reading) if is_zip else _old(file)
    return content_of(state, path, [file])


def _mapped(archive: Archive, reading: Reading) -> Any:
    if "constants.pkl" in archive.records:
        raise archive.fault(
            "a TorchScript archive holds code; import a torch.save of its state_dict()",
            "unsupported",
        )
    total = sum(record.bytes for record in archive.records.values())
    with reading.progress("check", total) as progress:
        archive.verify(progress.add)
    return value_of(archive, lambda: load(archive.file.path, mapped=True))


def value_of(archive: Archive, load_it: Callable[[], Any]) -> Any:
    """The value that `load_it` reads; CheckpointError if it would show memory after a record."""
    try:
        unclear = _unclear(lambda: _check_storages(archive))
        value = load_it()
    except ClaimError as cause:
        raise archive.fault(cause) from cause
    except RefusedError as cause:
        raise refused(archive, cause) from cause
    if unclear is not None:
        raise archive.fault(f"torch.save did not write its pickle ({unclear!r})") from unclear
    return value


def _unclear(check: Callable[[], object]) -> Exception | None:
    """The error that keeps pickles from being checked, if any; load() mostly explains it better."""
    try:
        check()
    except (CheckpointError, ClaimError):
        raise
    except Exception as cause:  # bytes that are no pickle raise anything
        return cause
    return None


def _check_storages(archive: Archive) -> None:
    """ClaimError if a tensor would show more than its record."""
    claims = storages_in(io.BytesIO(archive.read("data.pkl")))
    for key, (kind, count) in claims.items():
        record = archive.records.get(f"data/{key}")
        if record is None or record.bytes != count * storage_item_bytes(kind):
            raise ClaimError(f"record data/{key} does not have its {count} elements")


def _old(file: SourceFile) -> Any:
    try:
        unclear = _unclear(lambda: storages_in(stream_of(file.memory), _OLD_PICKLES))
        value = load(file.path)
    except ClaimError as cause:
        raise fault(file.path, "", cause) from cause
    except RefusedError as cause:
        names = names_in(stream_of(file.memory), _OLD_PICKLES)
        raise _refused(file.path, "", names, cause) from cause
    if unclear is not None:
        raise fault(file.path, "", f"torch.save did not write its pickles ({unclear!r})")
    return value


def refused(archive: Archive, cause: RefusedError) -> CheckpointError:
    """The error for an archive that weights_only does not load."""
    names = names_in(stream_of(memoryview(archive.read("data.pkl"))))
    return _refused(archive.file.path, archive.place, names, cause)


def _refused(path: Path, place: str, names: list[str], cause: RefusedError) -> CheckpointError:
    foreign = [name for name in names if not allowed(name)]
    if not foreign:
        return fault(path, place, cause)
    text = (
        f"to load it, Python would have to run {', '.join(foreign)}; only tensors and plain "
        "values are imported (torch.load with weights_only=True)"
    )
    return fault(path, place, text, "unsupported")
