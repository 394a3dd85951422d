"""Parts of several tests."""
