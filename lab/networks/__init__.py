"""What is trained and saved: networks in each framework, workloads, layouts of states."""
