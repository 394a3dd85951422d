"""Checkpoints of a training on one GPU: `python -m lab.experiments.gpu`."""
