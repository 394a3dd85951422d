"""What a checkpoint costs on 1 to 4,096 nodes: a model, driven by DeepFreeze's own planner."""
