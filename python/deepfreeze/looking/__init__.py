"""The verbs of `deepfreeze` for checkpoints that DCP saved to deepfreeze:// ids.

Such a checkpoint is a directory of small runs (deepfreeze.dcp.identity). The native program hands
its verbs over to us where it is given one, or a directory of them; we take it as one thing.
"""
