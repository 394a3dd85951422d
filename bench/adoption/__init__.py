"""What adoption would cost: a state that lives in the arena, saved without a copy."""
