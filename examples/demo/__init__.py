"""The demonstration: real training, a checkpoint every step, a kill, a resume bit for bit."""
