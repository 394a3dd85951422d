"""What checkpoints tell about a training afterwards: influence of examples, likeness of steps."""
