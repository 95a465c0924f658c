"""The real API server with its own policies, asked beside our engine."""
