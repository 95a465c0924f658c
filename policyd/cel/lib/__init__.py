"""Implement the functions of CEL and of the API server, one module for each library.

Imports the values, types and costs of `cel`, and `api`. Start with `strings`, a library like most;
a new function is declared in one, with its type, code and cost.
"""
