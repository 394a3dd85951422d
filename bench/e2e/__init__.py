"""Benchmarks of whole training loops, DeepFreeze beside its peers."""
