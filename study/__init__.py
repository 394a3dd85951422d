"""`deepfreeze study`: what checkpoints cost, hold and survive on this machine, by every writer."""
