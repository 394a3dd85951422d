"""Every way to write and load a checkpoint, DeepFreeze's and other people's."""
