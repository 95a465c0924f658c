"""What the queue costs a real API server, and how fast it is: Kueue's own load, and a floor."""
