"""Lets Chainer 7.8.1 be imported beside newer releases: docs/frameworks/chainer.md."""

from deepfreeze.frameworks.chainer.compat import install

__all__ = ["install"]
