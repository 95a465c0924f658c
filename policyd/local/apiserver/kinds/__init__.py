"""What the server knows of single kinds: their defaults, and the rules they keep.

Imports `checks`, `writing` and `custom` of the server, `patch`, and of `engine` the rules of the
API server's own policies. Start with `table`.
"""
