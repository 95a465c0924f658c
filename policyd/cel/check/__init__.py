"""Checks of an expression against its environment: names, types, overloads.

Start with `checker`.
"""
