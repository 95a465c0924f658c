"""Compile documents to policies.

Imports `documents`, `model`, `inject` and `objects` of the engine, `cel` and `patch`. Start with
`load`, the entry to the engine, then `policies`.
"""
