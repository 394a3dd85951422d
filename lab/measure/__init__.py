"""How things are measured: processes, rounds, rows, the machine."""
