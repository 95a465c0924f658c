"""The values that the engine's parts share: compiled policies, facts of a request, decisions."""
