"""`deepfreeze try`: a small training that is killed, resumed and compared, for a first look."""
