"""When to save, and what saves cost."""
