"""Benchmarks, tortures and `deepfreeze study`: what checkpoints cost, hold and survive here."""
