"""Programs of an environment: each answers one request of lab.measure.program.ask, then ends."""
