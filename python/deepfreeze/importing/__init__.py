"""`deepfreeze import`: checkpoints of other libraries made into one of ours.

A reader (dcp, torch_file, safetensors_files) checks its source as a whole and gives its contents,
most of it as memory mapped from the source's files; `saving` streams that into a run.
"""
