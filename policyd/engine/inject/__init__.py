"""`inject`: values with expressions in them, and how each joins what an object has."""
