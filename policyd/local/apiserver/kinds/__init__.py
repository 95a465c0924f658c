"""What the server knows of single kinds: their defaults, and the rules they keep."""
