"""What several ranks cost, and what they share: under torchrun, on one machine."""
