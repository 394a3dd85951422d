"""`deepfreeze import`: checkpoints of other libraries made into one of ours.

A reader (dcp, torch_file, safetensors_files) checks the whole source and gives its contents, most
of them as memory mapped from the source's files; `saving` streams them into a run.
"""
