"""From the text of an expression to its tree, and back.

Start with `parser` and `ast`.
"""
