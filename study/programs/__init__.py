"""Programs of an environment: each answers one request of study.program.ask, then ends."""
