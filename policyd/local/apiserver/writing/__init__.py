"""Answers to writes: create, replace, patch, delete.

Imports `patch`, and `admission`, `kinds` and `checks` of the server. Start with `write`.
"""
