"""Imports Chainer, and the modules that its saves import, before a process is forked."""

import importlib

from deepfreeze import chainer_compat

chainer_compat.install()
for name in ("chainer.training.extensions", "h5py"):
    importlib.import_module(name)
