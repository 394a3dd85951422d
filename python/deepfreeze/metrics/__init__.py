"""Counts of saves for Prometheus."""
