"""Benchmarks, tortures and `deepfreeze study`: cost, contents and survival of checkpoints."""
