"""End-to-end proofs; README.md lists the commands and the claims that they prove."""
