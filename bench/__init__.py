"""Benchmarks: what is claimed about speed, and the commands that measure it."""
