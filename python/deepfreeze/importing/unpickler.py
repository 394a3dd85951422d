"""An unpickler that allocates no memory merely because a pickle names a large number.

pickle.Unpickler keeps its memo in an array as large as the greatest index that is named: ten bytes
make it take 64 GB. The one written in Python uses a dict instead, and takes twice the time.
"""

from __future__ import annotations

import pickle
from typing import ClassVar

# BYTEARRAY8 allocates before the bytes are there; the others need data outside the pickle.
_LEFT_OUT = (
    pickle.BYTEARRAY8, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER,
    pickle.EXT1, pickle.EXT2, pickle.EXT4,
)  # fmt: skip


class Unpickler(pickle._Unpickler):
    """Derive from it as from pickle.Unpickler: find_class() decides which class a name means."""

    dispatch: ClassVar = {
        code: operation
        for code, operation in pickle._Unpickler.dispatch.items()
        if code not in {left_out[0] for left_out in _LEFT_OUT}
    }
