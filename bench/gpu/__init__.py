"""Checkpoints of a training on one GPU: `python -m bench.gpu`."""
