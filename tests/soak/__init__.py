"""Random jobs of all kinds and features, and a judge of what becomes of them."""
