"""One restore: from a checkpoint into the live state, or to values."""
