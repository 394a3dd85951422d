"""Imports Chainer and what it would import when it is asked to save, before a process is forked."""

import importlib

from deepfreeze import chainer_compat

chainer_compat.install()
for name in ("chainer.training.extensions", "h5py"):
    importlib.import_module(name)
