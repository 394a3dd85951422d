"""The same faults for DeepFreeze and its peers: flipped bits, power cuts, killed processes."""
