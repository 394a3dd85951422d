"""Lets Chainer 7.8.1 be imported beside a NumPy and a setuptools that are newer than itself.

from deepfreeze import chainer_compat

chainer_compat.install()
import chainer
"""

from __future__ import annotations

import sys
import types

import numpy

_SCTYPES = {
    "int": [numpy.int8, numpy.int16, numpy.int32, numpy.int64],
    "uint": [numpy.uint8, numpy.uint16, numpy.uint32, numpy.uint64],
    "float": [numpy.float16, numpy.float32, numpy.float64],
    "complex": [numpy.complex64, numpy.complex128],
    "others": [bool, object, bytes, str, numpy.void],
}


def install() -> None:
    """Call it before chainer is imported. It replaces no attribute that exists."""
    # The real module would only warn, and imports numpy.distutils and pkg_resources for that.
    checks = types.ModuleType("chainer._environment_check")
    setattr(checks, "check", lambda: None)  # noqa: B010 (a module type has no such member)
    sys.modules.setdefault("chainer._environment_check", checks)
    for name, value in (("sctypes", _SCTYPES), ("float", float), ("bool", bool)):
        if not hasattr(numpy, name):
            setattr(numpy, name, value)
