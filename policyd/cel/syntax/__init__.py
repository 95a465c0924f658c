"""From the text of an expression to its tree, and back.

Imports the types and errors of `cel` alone. Start with `parser` and `ast`.
"""
