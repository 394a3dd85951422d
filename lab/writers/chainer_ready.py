"""Imports Chainer and what it would import when it is asked to save, before a process is forked."""

from deepfreeze import chainer_compat

chainer_compat.install()
import chainer.training.extensions  # type: ignore[import-not-found, unused-ignore]  # noqa: E402, F401
import h5py  # noqa: E402, F401
