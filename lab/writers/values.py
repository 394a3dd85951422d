"""What the tensors hold: the same bytes in every process from one seed, others in every version.

Normal numbers, drawn once and repeated from another place in each tensor: as incompressible as
weights to what looks less far back than POOL_COUNT numbers, and made at the speed of a copy.
"""

from collections.abc import Iterator
from functools import cached_property

import numpy
from numpy.typing import NDArray

from lab.networks.layout import Layout

Array = NDArray[numpy.generic]

POOL_COUNT = 4 << 20
TENSOR_STRIDE = 104_729  # primes: no two tensors or versions begin at one place by accident
VERSION_STRIDE = 1_299_709


class Values:
    def __init__(self, seed: int) -> None:
        self._seed = seed

    @cached_property
    def _pool(self) -> NDArray[numpy.float32]:
        return numpy.random.default_rng(self._seed).standard_normal(POOL_COUNT, numpy.float32)

    def fill(self, array: Array, index: int, version: int) -> None:
        """Writes what the tensor at `index` holds in `version`."""
        flat = array.reshape(-1)
        if array.dtype != numpy.float32:
            flat[...] = index + version
            return
        for piece, source in self._pieces(flat.size, index, version):
            flat[piece] = source

    def holds(self, array: Array, index: int, version: int) -> bool:
        """Is it, byte for byte, what fill() writes?"""
        flat = array.reshape(-1)
        if array.dtype != numpy.float32:
            return bool((flat == index + version).all())
        bits = flat.view(numpy.uint32)
        return all(
            numpy.array_equal(bits[piece], source.view(numpy.uint32))
            for piece, source in self._pieces(flat.size, index, version)
        )

    def _pieces(self, count: int, index: int, version: int) -> Iterator[tuple[slice, Array]]:
        begin = (index * TENSOR_STRIDE + version * VERSION_STRIDE) % POOL_COUNT
        done = 0
        while done < count:
            length = min(count - done, POOL_COUNT - begin)
            yield slice(done, done + length), self._pool[begin : begin + length]
            done, begin = done + length, 0


def wrong(values: Values, layout: Layout, arrays: dict[str, Array], version: int) -> list[str]:
    """The names of the tensors that don't hold `version`; missing ones too."""
    found = []
    for index, spec in enumerate(layout.tensors):
        array = arrays.get(spec.name)
        fits = array is not None and array.shape == spec.shape and array.dtype == spec.dtype
        if array is None or not fits or not values.holds(array, index, version):
            found.append(spec.name)
    return found
