"""A stream of bytes that are known by their place: the base of its readers."""

from __future__ import annotations

import io
import os
from abc import abstractmethod


class RawReader(io.RawIOBase):
    """Keeps the place in a stream of a known size; readinto() reads from there."""

    def __init__(self) -> None:
        super().__init__()
        self._place = 0

    @property
    @abstractmethod
    def size(self) -> int:
        """The size of the stream in bytes."""

    @abstractmethod
    def _before_beginning(self, place: int) -> Exception:
        """The error of a seek to a place before the beginning."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        origins = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self.size}
        place = origins[whence] + offset
        if place < 0:
            raise self._before_beginning(place)
        self._place = place
        return place
