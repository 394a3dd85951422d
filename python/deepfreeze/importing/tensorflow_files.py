"""Checkpoints of tf.train.Checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepfreeze.importing.content import Content, Reading, content_of
from deepfreeze.importing.recognise import TF_SUFFIX
from deepfreeze.importing.source_files import SourceFile, fault

if TYPE_CHECKING:
    from deepfreeze.frameworks.tensorflow.files import Reader

_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


def read(source: Path, reading: Reading) -> Content:
    """The variables by their paths from the checkpoint's root, in one dict, read into memory.

    `source`: the .index file, or a directory with one. Checksums are compared by TensorFlow.
    """
    from deepfreeze.frameworks.tensorflow import files as tf_files

    index = _index_in(source) if source.is_dir() else source
    prefix = str(index).removesuffix(TF_SUFFIX)
    parts = sorted(index.parent.glob(f"{Path(prefix).name}.data-*-of-*"))
    files = [SourceFile(each) for each in (index, *parts)]
    state: dict[str, Any] = {}
    try:
        reader = tf_files.Reader(prefix)
        with reading.progress("read", sum(file.bytes for file in files)) as progress:
            for name in sorted(reader.names - {_GRAPH}):
                state[name.removesuffix(_VALUE)] = value = _number(reader, name, source)
                progress.add(value.nbytes)
    except tf_files.ERRORS as cause:
        raise fault(source, "", cause) from cause
    return content_of(state, source, files)


def _index_in(folder: Path) -> Path:
    found = sorted(folder.glob(f"*{TF_SUFFIX}"))
    if len(found) != 1:
        text = f"{len(found)} checkpoints in it, but one is needed: name its .index"
        raise fault(folder, "", text, "unsupported")
    return found[0]


def _number(reader: Reader, name: str, source: Path) -> Any:
    dtype = reader.unstorable_dtype(name)
    if dtype is not None:
        raise fault(source, f"({name})", f"values of {dtype}", "unsupported")
    return reader.read(name)
