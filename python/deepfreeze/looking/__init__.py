"""The verbs of `deepfreeze` for checkpoints that DCP saved to deepfreeze:// ids.

Each of these checkpoints is a directory of small runs (deepfreeze.dcp.identity). If the native
program is given one, or a directory of them, it hands the verb over to us; we treat each as one
checkpoint.
"""
