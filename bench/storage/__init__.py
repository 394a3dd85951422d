"""What each way of saving costs by itself: a process of its own for every measurement."""
