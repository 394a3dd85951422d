"""Helpers that every other room may use: names, arguments, progress, the native program."""
