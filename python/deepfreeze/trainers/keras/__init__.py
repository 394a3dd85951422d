"""Keras 3's fit()."""
