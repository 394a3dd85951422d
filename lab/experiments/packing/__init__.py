"""Packed files on tiers: ratios and rates, and flushes over slow and fast links (README.md of the
lab)."""
