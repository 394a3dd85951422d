"""Trained and saved things: networks in each framework, workloads, layouts of states."""
