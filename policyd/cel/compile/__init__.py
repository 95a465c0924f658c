"""From a checked expression to a Python function.

Start with `program`.
"""
