"""The zip archives that torch.save writes: the place of each record, and its checksum.

torch itself checks none. Its records are stored uncompressed, so they can be mapped.

The archive checked here is read by torch's own reader afterwards, which counts from the beginning
of the file and ignores the case of names. An archive in which it could find others is refused.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from dataclasses import dataclass

from deepfreeze.errors import CheckpointError
from deepfreeze.importing.source_files import Done, SourceFile, fault, stream_of

MAGIC = b"PK\3\4"

_LOCAL_HEADER_BYTES = 30
_CHECKED_AT_ONCE_BYTES = 16 << 20
_IS_ENCRYPTED = 1


@dataclass(frozen=True)
class Record:
    """One stored record; `begin` counts from the beginning of the file."""

    name: str  # without the archive's folder: "data.pkl", "data/0"
    begin: int
    bytes: int
    crc: int  # 0: none was calculated (torch.serialization.set_crc32_options)


class Archive:
    """One archive, which fills `size` bytes of a file from `begin` on."""

    def __init__(self, file: SourceFile, begin: int, size: int, name: str = "") -> None:
        """`name` is used for its contents in messages."""
        self.file = file
        self.place = f"at {begin} ({name})" if name else ""
        self._begin = begin
        self._size = size
        self.records = self._read_directory()

    def fault(self, cause: object, code: str = "corrupt") -> CheckpointError:
        """The error for this archive, which names its place."""
        return fault(self.file.path, self.place, cause, code)

    def stream(self) -> io.BufferedReader:
        """The archive as a file of its own."""
        return stream_of(self.file.memory[self._begin : self._begin + self._size])

    def read(self, name: str) -> bytes:
        """The bytes of a small record."""
        record = self.records.get(name)
        if record is None:
            raise self.fault(f"the archive has no {name}")
        return bytes(self.file.memory[record.begin : record.begin + record.bytes])

    @property
    def is_big_endian(self) -> bool:
        """Whether it was written on a big-endian machine."""
        return "byteorder" in self.records and self.read("byteorder") != b"little"

    def verify(self, done: Done) -> None:
        """CorruptError if a record does not match its checksum."""
        for record in self.records.values():
            crc = 0
            end = record.begin + record.bytes
            for begin in range(record.begin, end, _CHECKED_AT_ONCE_BYTES):
                part = self.file.memory[begin : min(end, begin + _CHECKED_AT_ONCE_BYTES)]
                crc = zlib.crc32(part, crc) if record.crc else 0
                done(len(part))
            if crc != record.crc:
                raise self.fault(f"record {record.name}: its CRC-32 does not match")

    def _read_directory(self) -> dict[str, Record]:
        try:
            with zipfile.ZipFile(self.stream()) as archive:
                infos = archive.infolist()
                self._check_alone(infos, archive.comment)
                found = [self._record(info) for info in infos]
        except CheckpointError:
            raise
        except Exception as cause:  # zipfile raises many types of errors for other files
            raise self.fault(f"it is no whole zip archive ({cause})") from cause
        if len({record.name.lower() for record in found}) != len(found):
            raise self.fault("the archive has two records of one name")
        if sum(record.bytes for record in found) > self._size:
            raise self.fault("its records overlap")
        return {record.name: record for record in found}

    def _check_alone(self, infos: list[zipfile.ZipInfo], comment: bytes) -> None:
        """Refuses a comment, and bytes before the archive: zipfile skips them, torch would not."""
        begin = min((info.header_offset for info in infos), default=0)
        if begin or comment:
            what = f"something else before byte {begin}" if begin else "a comment"
            raise self.fault(f"the archive has {what}, which torch.save never writes")

    def _record(self, info: zipfile.ZipInfo) -> Record:
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & _IS_ENCRYPTED:
            raise self.fault(
                f"record {info.filename} is compressed or encrypted, which torch.save never writes",
                "unsupported",
            )
        begin = self._begin + info.header_offset + self._local_header_bytes(info)
        if begin + info.file_size > self._begin + self._size:
            raise self.fault(f"record {info.filename} ends beyond the archive")
        name = info.filename.partition("/")[2]
        return Record(name, begin, info.file_size, info.CRC)

    def _local_header_bytes(self, info: zipfile.ZipInfo) -> int:
        stream = self.stream()
        stream.seek(info.header_offset)
        header = stream.read(_LOCAL_HEADER_BYTES)
        if not header.startswith(MAGIC):
            raise self.fault(f"record {info.filename} has no header at its place")
        name_bytes, extra_bytes = struct.unpack_from("<HH", header, 26)
        return _LOCAL_HEADER_BYTES + int(name_bytes) + int(extra_bytes)
