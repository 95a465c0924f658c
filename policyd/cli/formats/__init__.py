"""The files that commands read, and the forms in which they print.

Imports the pure folders and `policy_files`. Start with `files` (what is read) and `report` (what is
printed).
"""
