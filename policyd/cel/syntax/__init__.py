"""Parse the text of an expression to a tree, and write a tree as text.

Imports the types and errors of `cel` alone. Start with `parser` and `ast`.
"""
