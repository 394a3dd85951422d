"""DeepFreeze in the training loops of others."""
