"""`deepfreeze study`: what checkpoints cost, hold and survive on this machine, by many writers."""
