"""The defaults and rules of single kinds.

Imports `checks`, `writing` and `custom` of the server, `patch`, and of `engine` the rules of the
API server's own policies. Start with `jobs`; the tables in `writing.shape` name the
functions of each kind.
"""
