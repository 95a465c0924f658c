"""The embedded API server and a real one, asked the same."""
