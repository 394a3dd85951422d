"""The damage to the bytes of a file, at a place that is drawn. Knows no saver."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

PAGE_BYTES = 4096


@dataclass(frozen=True)
class Change:
    """The changes of one file."""

    writes: tuple[tuple[int, bytes], ...] = ()  # offset, bytes
    size: int | None = None  # cut to so many bytes
    about: dict[str, int] = field(default_factory=dict)

    def apply(self, whole: bytes) -> bytes:
        found = bytearray(whole)
        for offset, data in self.writes:
            found[offset : offset + len(data)] = data
        return bytes(found[: self.size])


Draw = Callable[[bytes, bytes, Random], Change | None]  # of the file, and of its older version


def bit(whole: bytes, _: bytes, random: Random) -> Change:
    offset, index = random.randrange(len(whole)), random.randrange(8)
    changed = bytes([whole[offset] ^ (1 << index)])
    return Change(((offset, changed),), about={"offset": offset, "bit": index})


def byte(whole: bytes, _: bytes, random: Random) -> Change:
    offset = random.randrange(len(whole))
    changed = bytes([whole[offset] ^ random.randrange(1, 256)])
    return Change(((offset, changed),), about={"offset": offset})


def zeroed_page(whole: bytes, _: bytes, random: Random) -> Change:
    offset = random.randrange(0, len(whole), PAGE_BYTES)
    length = min(PAGE_BYTES, len(whole) - offset)
    return Change(((offset, bytes(length)),), about={"offset": offset})


def cut_at_99(whole: bytes, _: bytes, random: Random) -> Change:
    size = len(whole) * 99 // 100
    return Change(size=size, about={"size": size})


def cut_anywhere(whole: bytes, _: bytes, random: Random) -> Change:
    size = random.randrange(len(whole))
    return Change(size=size, about={"size": size})


def swapped_pages(whole: bytes, _: bytes, random: Random) -> Change | None:
    count = len(whole) // PAGE_BYTES
    if count < 2:
        return None
    first, second = (PAGE_BYTES * index for index in random.sample(range(count), 2))
    pages = ((first, page(whole, second)), (second, page(whole, first)))
    return Change(pages, about={"offset": first, "other": second})


def stale_page(whole: bytes, older: bytes, random: Random) -> Change | None:
    """As a device leaves it that has dropped a write."""
    count = min(len(whole), len(older)) // PAGE_BYTES
    if count == 0:
        return None
    offset = PAGE_BYTES * random.randrange(count)
    return Change(((offset, page(older, offset)),), about={"offset": offset})


def page(whole: bytes, offset: int) -> bytes:
    return whole[offset : offset + PAGE_BYTES]


BIT = "one bit flipped"
KINDS: dict[str, Draw] = {
    BIT: bit,
    "one byte changed": byte,
    "a page of 4 KiB zeroed": zeroed_page,
    "cut off at 99 %": cut_at_99,
    "cut off anywhere": cut_anywhere,
    "two pages of 4 KiB swapped": swapped_pages,
    "a stale page of 4 KiB": stale_page,
}
