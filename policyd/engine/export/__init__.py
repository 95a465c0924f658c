"""Export policies as the API server's own kinds.

Imports `compile`, `model`, `inject`, `objects` and `documents` of the engine, `patch` and `cel`.
Start with `policies`.
"""
