"""The rules of when to save, and the measured cost of saves."""
