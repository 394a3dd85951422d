"""Checkpoints to an S3 store and back, beside other clients of it (README.md of the lab)."""
