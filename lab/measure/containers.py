"""What a file is, by its own bytes: names say nothing about contents."""

import json
import struct
import zipfile
from pathlib import Path

SNIFF_BYTES = 4096
HEADER_BYTES_MAX = 100 << 20  # of safetensors
MAGIC = (
    (b"\x89HDF\r\n\x1a\n", "HDF5"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x1f\x8b", "gzip"),
    (b"\x93NUMPY", "npy"),
    (b"\x80\x02", "pickle"),
    (b"\x80\x03", "pickle"),
    (b"\x80\x04", "pickle"),
    (b"\x80\x05", "pickle"),
    (b"\x0c\xdb\x0d\xde", "OCDBT"),
)
LEVELDB_FOOTER = b"\x57\xfb\x80\x8b\x24\x75\x47\xdb"  # of a table, as TensorFlow's index is


def container_of(path: Path) -> str:
    with path.open("rb") as file:
        head = file.read(SNIFF_BYTES)
        size = path.stat().st_size
        file.seek(max(0, size - len(LEVELDB_FOOTER)))
        tail = file.read()
    if not head:
        return "empty"
    if zipfile.is_zipfile(path):
        return zip_of(path)
    found = next((name for magic, name in MAGIC if head.startswith(magic)), "")
    if found:
        return found
    if tail == LEVELDB_FOOTER:
        return "TensorFlow index"
    if is_safetensors(path, head, size):
        return "safetensors"
    return "JSON" if is_json(path) else "bytes"


def zip_of(path: Path) -> str:
    with zipfile.ZipFile(path) as file:
        entries = file.infolist()
    names = [entry.filename for entry in entries]
    packed = any(entry.compress_type != zipfile.ZIP_STORED for entry in entries)
    inside = ""
    if any(name.endswith("data.pkl") for name in names):
        inside = " of pickle and bytes"
    elif any(name.endswith(".h5") for name in names):
        inside = " of HDF5"
    elif names and all(name.endswith(".npy") for name in names):
        inside = " of npy"
    return f"zip{inside}, {'deflated' if packed else 'stored'}"


def is_safetensors(path: Path, head: bytes, size: int) -> bool:
    if len(head) < 9:
        return False
    (length,) = struct.unpack("<Q", head[:8])
    if head[8:9] != b"{" or not 2 <= length <= min(HEADER_BYTES_MAX, size - 8):
        return False
    with path.open("rb") as file:
        file.seek(8)
        return is_object(file.read(length))


def is_json(path: Path) -> bool:
    return path.stat().st_size <= HEADER_BYTES_MAX and is_object(path.read_bytes())


def is_object(text: bytes) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
