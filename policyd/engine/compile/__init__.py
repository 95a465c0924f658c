"""From documents to compiled policies.

Start with `load`, the entry to the engine, then `policies`.
"""
