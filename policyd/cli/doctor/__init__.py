"""`policyd doctor`: what is wrong with an installation, and the command that fixes it.

Imports `kube`, `certificates`, `jobs` and `api`, and what is next to the folder. Start with
`command`.
"""
