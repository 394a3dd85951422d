"""Faults done to checkpoints and to the programs that write them, and their effects."""
