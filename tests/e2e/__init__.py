"""End-to-end proofs; README.md lists the commands and what each one proves."""
