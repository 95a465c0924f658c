"""The files that commands read, and the forms in which they print.

Imports the pure folders, `controller`, and `policy_files`. Start with `files` (input) and `report`
(output).
"""
