"""Asks the frameworks that the program has imported, and only those."""
