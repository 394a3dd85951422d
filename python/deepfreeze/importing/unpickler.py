"""An unpickler that takes no memory for what a pickle only says.

pickle.Unpickler keeps its memo in an array as large as the greatest index that is named: ten bytes
have it take 64 GB. The one written in Python has a dict for it, and takes twice the time.
"""

from __future__ import annotations

import pickle
from typing import ClassVar

# BYTEARRAY8 takes memory before the bytes are there; the others need what is outside the pickle.
_LEFT_OUT = (
    pickle.BYTEARRAY8, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER,
    pickle.EXT1, pickle.EXT2, pickle.EXT4,
)  # fmt: skip


class Unpickler(pickle._Unpickler):
    """Derive from it as from pickle.Unpickler: find_class() decides what a name stands for."""

    dispatch: ClassVar = {
        code: operation
        for code, operation in pickle._Unpickler.dispatch.items()
        if code not in {left_out[0] for left_out in _LEFT_OUT}
    }
