"""Networks, data and training runs that show DeepFreeze at work."""
