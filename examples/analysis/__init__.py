"""Two analyses of a training from its checkpoints: influence of examples, likeness of steps."""
